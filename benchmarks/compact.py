"""Measures what a longer limit of the fields of compact hashes saves and costs: memory, and Redis' CPU, per job.

    make bench            or   .venv/bin/python -m benchmarks.compact --payloads 200 1000

One client without Spark dispatches jobs, works them off, and collects them, on fresh servers with the limits in turns.
Prints medians and writes them to benchmarks/results/compact.json. See docs/concepts/capacity.md.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from dataclasses import asdict, astuple, dataclass
from typing import Final

from redis import Redis

from benchmarks.calls import add_staged, collect, stage
from benchmarks.clocked import cpu_of_process
from benchmarks.costs import memory_bytes
from benchmarks.filling import queue_at
from benchmarks.report import Verdict, at_most, show_verdicts, write_results
from benchmarks.stock import STOCK, stock_redis
from benchmarks.trials import work_off
from spark_bull.core.embedded.redis import COMPACT_SETTING, COMPACT_UP_TO

#: Redis' own limit, and the one that the doctor advises.
LIMITS: Final = (int(STOCK[COMPACT_SETTING]), COMPACT_UP_TO)
PAYLOAD: Final = 200
JOBS: Final = 50_000
CHUNK: Final = 100


@dataclass(frozen=True)
class Costs:
    """Of a job: bytes in Redis while it waits and once it has completed; Redis' CPU to add it, to claim and settle it,
    and to collect it.
    """

    waiting: float
    completed: float
    dispatch_us: float
    process_us: float
    collect_us: float


def measured(limit: int, payload: int, jobs: int) -> Costs:
    """Measures one life of jobs on a fresh server with a limit."""
    with (
        stock_redis({COMPACT_SETTING: str(limit)}) as server,
        Redis.from_url(server.url) as client,
        queue_at(server.url) as queue,
    ):
        handle = queue.handle

        def us(act: Callable[[], object]) -> float:
            before = cpu_of_process(server.pid)
            act()
            return (cpu_of_process(server.pid) - before) / jobs * 1e6

        empty = memory_bytes(client)
        stage(handle, jobs, payload)
        dispatch_us = us(lambda: add_staged(handle, jobs))
        waiting = memory_bytes(client) - empty
        process_us = us(lambda: work_off(handle, CHUNK))
        completed = memory_bytes(client) - empty
        collect_us = us(lambda: collect(handle, jobs))
        return Costs(waiting / jobs, completed / jobs, dispatch_us, process_us, collect_us)


def median_of(runs: list[Costs]) -> Costs:
    return Costs(*map(statistics.median, zip(*map(astuple, runs), strict=True)))


def verdicts(found: dict[int, Costs]) -> list[Verdict]:
    """Compares the limits, which must suit jobs with a payload of PAYLOAD bytes."""
    short, long = (found[limit] for limit in LIMITS)
    return [
        at_most("memory of a waiting job, x the default's", 0.6, long.waiting / short.waiting),
        at_most("memory of a completed job, x the default's", 0.6, long.completed / short.completed),
        at_most("Redis' CPU of dispatch, x the default's", 1.0, long.dispatch_us / short.dispatch_us),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--payloads", type=int, nargs="*", default=[PAYLOAD, 900], help="bytes of JSON of a job")
    parser.add_argument("--quick", action="store_true", help="few jobs, to check that it runs")
    args = parser.parse_args()
    rounds, jobs = (1, 2_000) if args.quick else (args.rounds, JOBS)
    report: dict[str, object] = {}
    results: list[Verdict] = []
    for payload in args.payloads:
        runs: dict[int, list[Costs]] = {limit: [] for limit in LIMITS}
        for _ in range(rounds):
            for limit, of_limit in runs.items():
                of_limit.append(measured(limit, payload, jobs))
        found = {limit: median_of(of_limit) for limit, of_limit in runs.items()}
        for limit, costs in found.items():
            print(f"{payload:,} bytes, {COMPACT_SETTING} {limit}: {costs}", flush=True)
            report[f"{payload} {limit}"] = asdict(costs)
        results += verdicts(found) if payload == PAYLOAD else []
    show_verdicts(results)
    write_results("compact", {"jobs": jobs, "costs": report})


if __name__ == "__main__":
    main()
