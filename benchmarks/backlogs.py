"""Benchmark of the CPU time per processed job beside few and many other jobs: ours and BullMQ's.

    .venv/bin/python -m benchmarks.backlogs --sizes 100000 3000000

Each worker has a server of its own with a backlog of each size, and works off a part of it, all of them in turns, so
that a machine whose speed changes changes all of them. Prints medians, and those of the ratios within a round, and
writes them to benchmarks/results/backlogs.json. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import time
from contextlib import ExitStack
from dataclasses import asdict
from typing import Final

from benchmarks.clocked import cpu_of_process
from benchmarks.engines import BULLMQ, Running, Used, median_of, ratio_of, running, show, sides_of
from benchmarks.filling import plain
from benchmarks.probes import cpu_of, pinged
from benchmarks.report import at_most, show_verdicts, write_results
from benchmarks.trials import completed, wait_until

OURS: Final = "loop, function"
WARM_UP: Final = 20_000
#: Jobs of a backlog that are worked off at a time.
PART: Final = 30_000


def part_of_backlog(side: Running, jobs: int) -> Used:
    """Works off about so many jobs, until the queue is paused again and no job is active; then adds as many."""
    client, pid = side.server.client, side.redis_pid
    done = completed(client)
    with pinged(side.server.port) as pings:
        others, own, began = cpu_of(side.worker.pid), cpu_of_process(pid), time.perf_counter()
        side.server.queue.resume()
        wait_until(lambda: completed(client) >= done + jobs)
        side.server.queue.pause()
        wait_until(lambda: not side.server.queue.counts()["active"])
        seconds = time.perf_counter() - began
        of_redis, used = cpu_of_process(pid) - own, cpu_of(side.worker.pid) - others
    worked = completed(client) - done
    side.server.queue.clean()
    side.add(plain(worked), worked)
    redis_us, python, jvm, node = (each / worked * 1e6 for each in (of_redis, used.python, used.jvm, used.node))
    return Used(redis_us + python + jvm + node, redis_us, python, jvm, node, worked / seconds, pings.p99)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs=2, type=int, default=[100_000, 3_000_000])
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    few, many = args.sizes
    part = min(PART, few // 2)
    runs: dict[str, list[Used]] = {}
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
    rise = dict[str, float]()
    for name in (OURS, BULLMQ):
        less, more = runs[f"{name}, {few:,}"], runs[f"{name}, {many:,}"]
        growth = ratio_of(more, less, "redis")
        rise[name] = (growth - 1) * median_of(less).redis
        print(f"{name}: Redis {growth:.2f} x, {rise[name]:+.1f} us per job")
    verdicts = [at_most(f"{OURS}, growth of Redis' CPU, us, against BullMQ's", max(0.0, rise[BULLMQ]), rise[OURS])]
    show_verdicts(verdicts)
    results = {name: [used._asdict() for used in of_side] for name, of_side in runs.items()}
    write_results("backlogs", {"runs": results, "verdicts": [asdict(verdict) for verdict in verdicts]})


if __name__ == "__main__":
    main()
