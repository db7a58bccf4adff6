"""Benchmark of growth: cost per job and memory of each verb with few and many jobs, and Redis' cost with BullMQ.

    make bench            or   .venv/bin/python -m benchmarks.growth --verbs dispatch --sizes 100000 1000000

Prints all figures and writes them to benchmarks/results/growth.json. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeVar

from benchmarks.calls import MAX_MS, Called
from benchmarks.growing import VERBS, Grown, Run, fill_waiting, memory_bytes
from benchmarks.report import Verdict, at_most, show_verdicts, write_results
from benchmarks.sides import add_bulk
from benchmarks.spread import KINDS, Spread
from benchmarks.trials import Server, cpu_seconds, fresh_server, resume_and_wait
from benchmarks.workers import peers

SIZES: Final = (100_000, 1_000_000, 3_000_000)
QUICK_SIZES: Final = (2_000, 20_000)
PARTS: Final = ("verbs", "calls", "queues", "partitions")
#: Jobs of a queue whose calls are measured one by one.
CALL_SIZES: Final = (10_000, 100_000, 1_000_000, 10_000_000)
#: Queues, and partitions, of a write.
COUNTS: Final[Mapping[str, tuple[int, ...]]] = {"queues": (1_000, 10_000), "partitions": (500, 2_000)}
#: Redis' CPU per job of a step, as a ratio to the least of the smaller sizes: more keys are further apart in memory.
CALL_TARGET: Final = 2.0
#: The same per queue or partition.
SPREAD_TARGET: Final = 1.25
#: Cost per job, and peak memory, as a ratio to the least of the smaller sizes.
COST_TARGET: Final = 1.05
MEMORY_TARGET: Final = 1.10
#: Redis' memory per job, as a ratio to that of BullMQ's jobs.
REDIS_MEMORY_TARGET: Final = 1.05
COSTS: Final = ("wall_us", "redis_us", "python_us", "jvm_us")
#: The memory of the JVM is shown only: it grows until its heap is full for the first time, whose limit is given.
MEMORY: Final = ("heap_mib", "python_mib")


def grown(verb: str, jobs: int) -> Grown:
    """Measures a verb in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.growing", verb, str(jobs)]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    return Grown(**json.loads(lines[-1]))


def printed_json(program: str, *arguments: object) -> dict[str, dict[str, Any]]:
    """Runs a measurement in a process of its own, which prints its figures last."""
    command = [sys.executable, "-m", f"benchmarks.{program}", *map(str, arguments)]
    lines: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            lines.append(line)
            if not line.startswith("{"):
                print(line, end="", flush=True)
    assert process.returncode == 0, f"expected {command} to succeed, got exit code {process.returncode}"
    found: dict[str, dict[str, Any]] = json.loads(lines[-1])
    return found


def called_of(steps: Mapping[str, dict[str, Any]]) -> dict[str, Called]:
    return {step: Called(**one) for step, one in steps.items()}


def call_verdicts(found: Mapping[int, Mapping[str, Called]]) -> list[Verdict]:
    """Compares the cost of each step with that of fewer jobs, and each call with the longest time allowed."""
    sizes, results = sorted(found), []
    for at, jobs in enumerate(sizes):
        for step, called in found[jobs].items():
            what = f"{step}, {jobs:,} jobs"
            results.append(at_most(f"{what}: longest call, Redis' CPU", MAX_MS, called.longest_ms, " ms"))
            if at:
                least = min(found[size][step].us_per_job for size in sizes[:at])
                results.append(at_most(f"{what}: Redis' CPU, x that of fewer", CALL_TARGET, called.us_per_job / least))
    return results


def spread_verdicts(kind: str, found: Mapping[int, Spread]) -> list[Verdict]:
    (few, less), (many, more) = sorted(found.items())
    return [
        at_most(f"{many:,} {kind}: {name}, x that of {few:,}", SPREAD_TARGET, getattr(more, name) / getattr(less, name))
        for name in ("redis_ms", "python_ms", "jvm_ms")
    ]


def verdicts(verb: str, found: Mapping[int, Grown]) -> list[Verdict]:
    """Compares each size with the smaller ones."""
    sizes = sorted(found)
    results = []
    for at, jobs in enumerate(sizes[1:], 1):
        for names, target in ((COSTS, COST_TARGET), (MEMORY, MEMORY_TARGET)):
            for name in names:
                least = min(getattr(found[size], name) for size in sizes[:at])
                results.append(
                    at_most(
                        f"{verb}, {jobs:,} jobs: {name}, x that of fewer", target, getattr(found[jobs], name) / least
                    )
                )
    return results


# The same with BullMQ, on a server of its own.


@dataclass(frozen=True)
class NodeGrown:
    """Per job of BullMQ: Redis' CPU time (µs), and the memory of Redis that the verb adds (bytes)."""

    redis_us: float
    redis_bytes: float


#: The figures of one side.
T = TypeVar("T", Grown, NodeGrown)


def added_by_node(server: Server, jobs: int) -> AbstractContextManager[Run]:
    return add_bulk(1)(server.port, jobs)


@contextmanager
def processed_by_node(server: Server, jobs: int) -> Iterator[Run]:
    server.queue.pause()
    fill_waiting(server.url, jobs)
    with peers("bullmq_process.js", 1, 50)(server.url):
        yield lambda: resume_and_wait(server, jobs)


NODE_VERBS: Final[Mapping[str, Callable[[Server, int], AbstractContextManager[Run]]]] = {
    "dispatch": added_by_node,
    "process": processed_by_node,
}


def grown_by_node(verb: str, jobs: int) -> NodeGrown:
    with fresh_server() as server, NODE_VERBS[verb](server, jobs) as run:
        memory, cpu = memory_bytes(server.client), cpu_seconds(server.client)
        run()
        cpu_us, added = (cpu_seconds(server.client) - cpu) * 1e6, memory_bytes(server.client) - memory
        return NodeGrown(cpu_us / jobs, added / jobs)


def memory_verdicts(ours: Mapping[str, float], node: Mapping[str, float]) -> list[Verdict]:
    """Compares Redis' memory per waiting job, and per finished one, which has that of both verbs."""
    results = [
        at_most("Redis' memory per added job, x BullMQ", REDIS_MEMORY_TARGET, ours["dispatch"] / node["dispatch"])
    ]
    if "process" in ours:
        finished = (ours["dispatch"] + ours["process"]) / (node["dispatch"] + node["process"])
        results.append(at_most("Redis' memory per finished job, x BullMQ", REDIS_MEMORY_TARGET, finished))
    return results


def growth_verdict(verb: str, ours: Mapping[int, Grown], node: Mapping[int, NodeGrown]) -> Verdict:
    """Compares how much more Redis' CPU a job takes with most jobs than with least: ours, and BullMQ's."""
    most, least = max(ours), min(ours)
    own = ours[most].redis_us / ours[least].redis_us
    return at_most(
        f"{verb}: Redis' CPU with {most:,} jobs, x {least:,}, not more than BullMQ's",
        node[most].redis_us / node[least].redis_us,
        own,
    )


def show(verb: str, found: Mapping[int, T]) -> None:
    print(f"\n{verb:18}" + "".join(f"{name:>12}" for name in asdict(next(iter(found.values())))))
    for jobs, one in found.items():
        print(f"{jobs:18,}" + "".join(f"{figure:12.1f}" for figure in asdict(one).values()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--verbs", nargs="+", choices=list(VERBS), default=list(VERBS), help="verbs to measure")
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES), help="numbers of jobs")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts to run; default: all")
    parser.add_argument("--call-sizes", nargs="+", type=int, default=CALL_SIZES, help="numbers of jobs of `calls`")
    parser.add_argument("--server", help="redis-server of `calls`; default: the embedded one")
    parser.add_argument("--quick", action="store_true", help="small sizes, to check that it runs")
    args = parser.parse_args()
    sizes = sorted(QUICK_SIZES if args.quick else args.sizes)

    ours: dict[str, dict[int, Grown]] = {verb: {} for verb in args.verbs}
    node: dict[str, dict[int, NodeGrown]] = {verb: {} for verb in args.verbs if verb in NODE_VERBS}
    for verb in args.verbs if "verbs" in args.only else ():
        for jobs in sizes:
            ours[verb][jobs] = grown(verb, jobs)
            print(f"{verb}, {jobs:,} jobs: {ours[verb][jobs]}", flush=True)
            if verb in node:
                node[verb][jobs] = grown_by_node(verb, jobs)
                print(f"{verb}, {jobs:,} jobs: {node[verb][jobs]}", flush=True)
        show(verb, ours[verb])
        if verb in node:
            show(f"{verb} by BullMQ", node[verb])

    all_verdicts = [verdict for verb, of_verb in ours.items() for verdict in verdicts(verb, of_verb)]
    further: dict[str, object] = {}
    if "calls" in args.only:
        server = [args.server] if args.server else []
        call_sizes = QUICK_SIZES if args.quick else args.call_sizes
        calls = {size: printed_json("calls", size, *server) for size in call_sizes}
        all_verdicts += call_verdicts({size: called_of(steps) for size, steps in calls.items()})
        further["calls"] = calls
    for kind in KINDS:
        if kind in args.only:
            spread = printed_json("spread", kind, *((20, 40) if args.quick else COUNTS[kind]))
            all_verdicts += spread_verdicts(kind, {int(count): Spread(**one) for count, one in spread.items()})
            further[kind] = spread
    all_verdicts += [growth_verdict(verb, ours[verb], of) for verb, of in node.items() if len(of) > 1]
    if ours.get("dispatch"):
        added, of_node = ({verb: of[sizes[0]].redis_bytes for verb, of in side.items()} for side in (ours, node))
        all_verdicts += memory_verdicts(added, of_node)
    show_verdicts(all_verdicts)
    is_whole = len(args.verbs) == len(VERBS) and len(args.only) == len(PARTS)
    write_results(
        "growth" if is_whole else f"growth-{'-'.join(args.only if len(args.only) < len(PARTS) else args.verbs)}",
        {
            "ours": _by_size(ours),
            "node": _by_size(node),
            **further,
            "verdicts": [asdict(verdict) for verdict in all_verdicts],
        },
    )


def _by_size(found: Mapping[str, Mapping[int, T]]) -> dict[str, dict[str, dict[str, float]]]:
    return {verb: {str(jobs): asdict(one) for jobs, one in of_verb.items()} for verb, of_verb in found.items()}


if __name__ == "__main__":
    main()
