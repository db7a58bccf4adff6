"""Benchmark of calls: spark_bull.call and BullMQ's addBulk with waitUntilFinished, in turns, a fresh server each.

    make bench            or   .venv/bin/python -m benchmarks.calling --jobs 5000 --rounds 1

Prints medians and writes all runs to benchmarks/results/calling.json. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, fields
from statistics import median
from typing import Any, Final

from pyspark.sql import SparkSession

import spark_bull
from benchmarks.probes import Cpu, adopt_orphans, cpu_of
from benchmarks.report import Verdict, at_least, at_most, show_verdicts, write_results
from benchmarks.sides import new_session
from benchmarks.trials import Server, cpu_seconds, fresh_server
from benchmarks.workers import PEERS, QUEUE, peer_process, peers

OURS, FEWER, DETAILS = "call", "call, events=ends", "call, with details"
BULLMQ, REMOVING = "BullMQ waitUntilFinished", "the same, which keeps 1,000 jobs"
#: Least rate of ours, as a ratio to BullMQ's, and the most CPU time of Redis.
RATE: Final = 1.25
SERVER: Final = 1.0
SIDES: Final = (OURS, FEWER, DETAILS, BULLMQ, REMOVING)
#: The arguments of each side of ours.
ARGUMENTS: Final[Mapping[str, Mapping[str, Any]]] = {OURS: {}, FEWER: {"events": "ends"}, DETAILS: {"details": True}}
CONCURRENCY, IN_FLIGHT, WARM_UP, KEPT = 100, 1_000, 2_000, 1_000
#: Queries that warm the session up, and the calls of each.
QUERIES, SMALL = 10, 100

#: Calls this number of jobs, and returns when all have ended.
Calling = Callable[[int], None]


@dataclass(frozen=True)
class Called:
    """Jobs per second, and CPU times per job, µs: of Redis, and of Node, Python and the JVM."""

    per_second: float
    server_us: float
    node_us: float = 0.0
    python_us: float = 0.0
    jvm_us: float = 0.0

    @property
    def all_us(self) -> float:
        return self.server_us + self.node_us + self.python_us + self.jvm_us


@contextmanager
def ours(spark: SparkSession, server: Server, arguments: Mapping[str, Any]) -> Iterator[Calling]:
    def call(jobs: int) -> None:
        rows = spark.range(jobs, numPartitions=1)
        options: dict[str, Any] = {"url": server.url, "protocol": "bullmq", **arguments}
        found = spark_bull.call(rows, QUEUE, in_flight=IN_FLIGHT, on_error="fail", **options)
        found.write.format("noop").mode("overwrite").save()

    yield call


@contextmanager
def bullmq(server: Server, kept: int | None) -> Iterator[Calling]:
    """kept: the number of jobs that have completed and are kept; None: all."""
    command = ["node", str(PEERS / "bullmq_call.js"), server.url, QUEUE, *([] if kept is None else [str(kept)])]
    with peer_process(command) as peer:
        peer.expect("ready")

        def call(jobs: int) -> None:
            peer.send(str(jobs))
            peer.expect("done")

        yield call


def calling(spark: SparkSession, side: str, server: Server) -> AbstractContextManager[Calling]:
    if side in ARGUMENTS:
        return ours(spark, server, ARGUMENTS[side])
    return bullmq(server, KEPT if side == REMOVING else None)


def warm_up(spark: SparkSession) -> None:
    """Runs small calls, so that the JVM has compiled what a query needs."""
    with fresh_server() as server, peers("bullmq_process.js", 1, CONCURRENCY)(server.url):
        for _ in range(QUERIES):
            with ours(spark, server, {}) as call:
                call(SMALL)


def measure(spark: SparkSession, side: str, jobs: int) -> Called:
    """Calls jobs on a fresh server. A Node worker that is connected and warm processes them."""
    with fresh_server() as server, peers("bullmq_process.js", 1, CONCURRENCY)(server.url):
        with calling(spark, side, server) as call:
            call(WARM_UP)
            before, cpu, started = cpu_of(os.getpid()), cpu_seconds(server.client), time.perf_counter()
            call(jobs)
            seconds = time.perf_counter() - started
            server_s, after = cpu_seconds(server.client) - cpu, cpu_of(os.getpid())
        left = {BULLMQ: WARM_UP + jobs, REMOVING: KEPT}.get(side, 0)
        kept = sum(server.queue.counts().values())
        assert kept == left, f"expected all jobs to have ended, and {left} to be left, got {kept}"
        used = (server_s, *(one - other for one, other in zip(_parts(after), _parts(before), strict=True)))
        return Called(jobs / seconds, *(one / jobs * 1e6 for one in used))


def _parts(cpu: Cpu) -> tuple[float, float, float]:
    return cpu.node, cpu.python, cpu.jvm


def medians(runs: list[Called]) -> Called:
    return Called(*(median(getattr(run, part.name) for run in runs) for part in fields(Called)))


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
    parser.add_argument("--only", nargs="+", choices=SIDES, default=SIDES, help="sides that are measured")
    arguments = parser.parse_args()
    runs: dict[str, list[Called]] = {side: [] for side in arguments.only}
    adopt_orphans()
    spark = new_session()
    warm_up(spark)
    for _ in range(arguments.rounds):
        for side, each in runs.items():
            each.append(measure(spark, side, arguments.jobs))
    spark.stop()
    found = {side: medians(each) for side, each in runs.items()}
    print(f"{'CPU in µs/job':36}{'jobs/s':>10}{'Redis':>10}{'Node':>10}{'Python':>10}{'JVM':>10}{'all':>10}")
    for side, called in found.items():
        times = (called.server_us, called.node_us, called.python_us, called.jvm_us, called.all_us)
        print(f"{side:36}{called.per_second:10,.0f}" + "".join(f"{each:10.1f}" for each in times))
    if {OURS, BULLMQ} <= found.keys():
        show_verdicts(verdicts(found))
    write_results("calling", {"runs": {side: [asdict(run) for run in each] for side, each in runs.items()}})


if __name__ == "__main__":
    main()
