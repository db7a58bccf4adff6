"""Benchmark of the CPU time per processed job beside few and many other jobs: ours and BullMQ's.

    .venv/bin/python -m benchmarks.backlogs --sizes 100000 3000000

Each worker has a server of its own with a backlog of one of the sizes. In each round, one after the other works off a
part of it, so that all are measured at about the same speed of the machine. Prints medians, and those of the ratios
within a round, and writes them to benchmarks/results/backlogs.json. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import statistics
from contextlib import ExitStack
from dataclasses import asdict
from typing import Final

from benchmarks.engines import BULLMQ, Running, Used, median_of, ratios_of, running, show, show_header, sides_of
from benchmarks.filling import plain
from benchmarks.report import at_most, show_verdicts, write_results
from benchmarks.trials import completed, wait_until

OURS: Final = "loop, function"
WARM_UP: Final = 20_000
#: Jobs of a backlog that are worked off at a time.
PART: Final = 30_000


def part_of_backlog(side: Running, jobs: int) -> Used:
    """Works off about so many jobs, until the queue is paused again and no job is active; then adds as many."""
    client, queue = side.server.client, side.server.queue

    def work_off() -> int:
        done = completed(client)
        queue.resume()
        wait_until(lambda: completed(client) >= done + jobs)
        queue.pause()
        wait_until(lambda: not queue.counts()["active"])
        return completed(client) - done

    used = side.used_by(work_off)
    counts = queue.counts()
    assert not counts["failed"], f"expected no failed job, got {counts}"
    worked = len(queue.clean())
    side.add(plain(worked), worked)
    return used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs=2, type=int, default=[100_000, 3_000_000])
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    few, many = args.sizes
    part = min(PART, few // 2)
    runs: dict[str, list[Used]] = {}
    show_header()
    with ExitStack() as stack:
        sides: dict[str, Running] = {}
        for size in (few, many):
            for name, side in sides_of([OURS], None, []).items():
                one = sides[f"{name}, {size:,}"] = stack.enter_context(running(side))
                one.warm_up(WARM_UP)
                one.add(plain(size), size)
        for number in range(args.rounds):
            for name, one in sides.items():
                runs.setdefault(name, []).append(part_of_backlog(one, part))
                show(f"{number + 1}: {name}", runs[name][-1])
    print("\nmedians, CPU time per job in us")
    for name, of_side in runs.items():
        show(name, median_of(of_side))
    growth = {name: ratios_of(runs[f"{name}, {many:,}"], runs[f"{name}, {few:,}"], "redis") for name in (OURS, BULLMQ)}
    for name, ratios in growth.items():
        print(f"{name}: Redis {statistics.median(ratios):.2f} x ({min(ratios):.2f} to {max(ratios):.2f})")
    ours, theirs = (statistics.median(growth[name]) for name in (OURS, BULLMQ))
    verdicts = [at_most(f"{OURS}, growth of Redis' CPU, x BullMQ's", 1.0, ours / theirs)]
    show_verdicts(verdicts)
    results = {name: [used._asdict() for used in of_side] for name, of_side in runs.items()}
    write_results("backlogs", {"runs": results, "verdicts": [asdict(verdict) for verdict in verdicts]})


if __name__ == "__main__":
    main()
