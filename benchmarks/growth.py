"""Benchmark of growth: cost per job and memory of each verb with few and with many jobs, and Redis' memory per job.

    make bench            or   .venv/bin/python -m benchmarks.growth --verbs dispatch --sizes 100000 1000000

Prints all figures and writes them to benchmarks/results/growth.json. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Final

from benchmarks.growing import VERBS, Grown, memory_bytes
from benchmarks.report import Verdict, at_most, show_verdicts, write_results
from benchmarks.sides import add_bulk
from benchmarks.trials import Server, completed, fresh_server, wait_until
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


# Redis' memory for jobs that BullMQ has added, and processed.


def added_by_node(server: Server, jobs: int) -> None:
    with add_bulk(1)(server.port, jobs) as run:
        run()


def processed_by_node(server: Server, jobs: int) -> None:
    with peers("bullmq_process.js", 1, 50)(server.url):
        wait_until(lambda: completed(server.client) >= jobs)


def node_bytes(jobs: int) -> dict[str, float]:
    """Redis' memory that BullMQ adds per job, by verb."""
    with fresh_server() as server:
        found = {}
        steps: Mapping[str, Callable[[Server, int], None]] = {"dispatch": added_by_node, "process": processed_by_node}
        for verb, step in steps.items():
            before = memory_bytes(server.client)
            step(server, jobs)
            found[verb] = (memory_bytes(server.client) - before) / jobs
        return found


def memory_verdicts(ours: Mapping[str, float], node: Mapping[str, float]) -> list[Verdict]:
    """Compares Redis' memory per waiting job, and per finished one, which has that of both verbs."""
    results = [
        at_most("Redis' memory per added job, x BullMQ", REDIS_MEMORY_TARGET, ours["dispatch"] / node["dispatch"])
    ]
    if "process" in ours:
        finished = (ours["dispatch"] + ours["process"]) / (node["dispatch"] + node["process"])
        results.append(at_most("Redis' memory per finished job, x BullMQ", REDIS_MEMORY_TARGET, finished))
    return results


def show(verb: str, found: Mapping[int, Grown]) -> None:
    print(f"\n{verb:10}" + "".join(f"{name:>12}" for name in asdict(next(iter(found.values())))))
    for jobs, one in found.items():
        print(f"{jobs:10,}" + "".join(f"{figure:12.1f}" for figure in asdict(one).values()), flush=True)


def measured(verbs: Sequence[str], sizes: Sequence[int]) -> dict[str, dict[int, Grown]]:
    found: dict[str, dict[int, Grown]] = {}
    for verb in verbs:
        found[verb] = {}
        for jobs in sizes:
            found[verb][jobs] = grown(verb, jobs)
            print(f"{verb}, {jobs:,} jobs: {asdict(found[verb][jobs])}", flush=True)
        show(verb, found[verb])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--verbs", nargs="+", choices=list(VERBS), default=list(VERBS), help="verbs to measure")
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES), help="numbers of jobs")
    parser.add_argument("--quick", action="store_true", help="small sizes, to check that it runs")
    args = parser.parse_args()
    sizes = sorted(QUICK_SIZES if args.quick else args.sizes)

    found = measured(args.verbs, sizes)
    all_verdicts = [verdict for verb, of_verb in found.items() for verdict in verdicts(verb, of_verb)]
    node: dict[str, float] = {}
    if "dispatch" in found:
        node = node_bytes(sizes[0])
        ours = {verb: of_verb[sizes[0]].redis_bytes for verb, of_verb in found.items()}
        print(f"\nRedis' memory, bytes per job of {sizes[0]:,}: BullMQ {node}, ours {ours}")
        all_verdicts += memory_verdicts(ours, node)
    show_verdicts(all_verdicts)
    write_results(
        "growth" if len(args.verbs) == len(VERBS) else f"growth-{'-'.join(args.verbs)}",
        {
            "sizes": {verb: {str(jobs): asdict(one) for jobs, one in of.items()} for verb, of in found.items()},
            "node_bytes": node,
            "verdicts": [asdict(verdict) for verdict in all_verdicts],
        },
    )


if __name__ == "__main__":
    main()
