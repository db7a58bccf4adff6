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
from typing import Final, TypeVar

from benchmarks.growing import VERBS, Grown, Run, fill_waiting, memory_bytes
from benchmarks.report import Verdict, at_most, show_verdicts, write_results
from benchmarks.sides import add_bulk
from benchmarks.trials import Server, cpu_seconds, fresh_server, resume_and_wait
from benchmarks.workers import peers

SIZES: Final = (100_000, 1_000_000, 3_000_000)
QUICK_SIZES: Final = (2_000, 20_000)
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


def show(verb: str, found: Mapping[int, T]) -> None:
    print(f"\n{verb:18}" + "".join(f"{name:>12}" for name in asdict(next(iter(found.values())))))
    for jobs, one in found.items():
        print(f"{jobs:18,}" + "".join(f"{figure:12.1f}" for figure in asdict(one).values()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--verbs", nargs="+", choices=list(VERBS), default=list(VERBS), help="verbs to measure")
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES), help="numbers of jobs")
    parser.add_argument("--quick", action="store_true", help="small sizes, to check that it runs")
    args = parser.parse_args()
    sizes = sorted(QUICK_SIZES if args.quick else args.sizes)

    ours: dict[str, dict[int, Grown]] = {verb: {} for verb in args.verbs}
    node: dict[str, dict[int, NodeGrown]] = {verb: {} for verb in args.verbs if verb in NODE_VERBS}
    for verb in args.verbs:
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
    if "dispatch" in ours:
        added, of_node = ({verb: of[sizes[0]].redis_bytes for verb, of in side.items()} for side in (ours, node))
        all_verdicts += memory_verdicts(added, of_node)
    show_verdicts(all_verdicts)
    write_results(
        "growth" if len(args.verbs) == len(VERBS) else f"growth-{'-'.join(args.verbs)}",
        {"ours": _by_size(ours), "node": _by_size(node), "verdicts": [asdict(verdict) for verdict in all_verdicts]},
    )


def _by_size(found: Mapping[str, Mapping[int, T]]) -> dict[str, dict[str, dict[str, float]]]:
    return {verb: {str(jobs): asdict(one) for jobs, one in of_verb.items()} for verb, of_verb in found.items()}


if __name__ == "__main__":
    main()
