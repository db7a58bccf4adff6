"""Benchmark of calls: spark_bull.call and BullMQ's addBulk with waitUntilFinished, in turns, a fresh server each.

    make bench            or   .venv/bin/python -m benchmarks.calling --jobs 5000 --rounds 1

Prints medians and writes all runs to benchmarks/results/calling.json. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Final

from pyspark.sql import SparkSession

import spark_bull
from benchmarks.report import Verdict, at_least, at_most, show_verdicts, write_results
from benchmarks.sides import new_session
from benchmarks.trials import Server, cpu_seconds, fresh_server
from benchmarks.workers import PEERS, QUEUE, peer_process, peers

OURS, DETAILS, BULLMQ = "call", "call, with details", "BullMQ waitUntilFinished"
#: Least rate of ours, as a ratio to BullMQ's, and the most CPU time of Redis.
RATE: Final = 1.25
SERVER: Final = 1.0
CONCURRENCY, IN_FLIGHT, WARM_UP = 100, 1_000, 2_000

#: Calls so many jobs, and returns when all have ended.
Calling = Callable[[int], None]


@dataclass(frozen=True)
class Called:
    """Jobs per second, and CPU time of Redis per job, µs."""

    per_second: float
    server_us: float


@contextmanager
def ours(spark: SparkSession, server: Server, *, details: bool) -> Iterator[Calling]:
    def call(jobs: int) -> None:
        rows = spark.range(jobs, numPartitions=1)
        options: dict[str, Any] = {"url": server.url, "protocol": "bullmq"}
        found = spark_bull.call(rows, QUEUE, in_flight=IN_FLIGHT, on_error="fail", details=details, **options)
        found.write.format("noop").mode("overwrite").save()

    yield call


@contextmanager
def bullmq(server: Server) -> Iterator[Calling]:
    with peer_process(["node", str(PEERS / "bullmq_call.js"), server.url, QUEUE]) as peer:
        peer.expect("ready")

        def call(jobs: int) -> None:
            peer.send(str(jobs))
            peer.expect("done")

        yield call


def measure(spark: SparkSession, side: str, jobs: int) -> Called:
    """Calls jobs on a fresh server. A Node worker that is connected and warm processes them."""
    with fresh_server() as server, peers("bullmq_process.js", 1, CONCURRENCY)(server.url):
        with bullmq(server) if side == BULLMQ else ours(spark, server, details=side == DETAILS) as call:
            call(WARM_UP)
            cpu, started = cpu_seconds(server.client), time.perf_counter()
            call(jobs)
            seconds = time.perf_counter() - started
            server_us = (cpu_seconds(server.client) - cpu) / jobs * 1e6
        kept = sum(server.queue.counts().values())
        assert kept == (WARM_UP + jobs if side == BULLMQ else 0), f"expected all jobs to have ended, {kept} are left"
        return Called(jobs / seconds, server_us)


def medians(runs: list[Called]) -> Called:
    return Called(median(run.per_second for run in runs), median(run.server_us for run in runs))


def verdicts(found: dict[str, Called]) -> list[Verdict]:
    """Calls must be faster than BullMQ, and take no more of Redis."""
    mine, peer = found[OURS], found[BULLMQ]
    return [
        at_least("jobs/s, call / BullMQ", RATE, mine.per_second / peer.per_second, " x"),
        at_most("Redis' CPU per job, call / BullMQ", SERVER, mine.server_us / peer.server_us, " x"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs of each run")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side")
    arguments = parser.parse_args()
    runs: dict[str, list[Called]] = {OURS: [], DETAILS: [], BULLMQ: []}
    spark = new_session()
    for _ in range(arguments.rounds):
        for side, each in runs.items():
            each.append(measure(spark, side, arguments.jobs))
    spark.stop()
    found = {side: medians(each) for side, each in runs.items()}
    print(f"{'':40}{'jobs/s':>12}{'Redis, µs/job':>16}")
    for side, called in found.items():
        print(f"{side:40}{called.per_second:12,.0f}{called.server_us:16.1f}")
    show_verdicts(verdicts(found))
    write_results("calling", {"runs": {side: [asdict(run) for run in each] for side, each in runs.items()}})


if __name__ == "__main__":
    main()
