"""Benchmark of latencies under load: of jobs at a constant rate, and of another client's PING in each verb.

    make bench            or   .venv/bin/python -m benchmarks.latency --only load

Prints medians and writes them to benchmarks/results/latency.json. See benchmarks/README.md.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from benchmarks.collecting import collects
from benchmarks.command import Part, by_side, in_turns, medians, run_parts
from benchmarks.filling import fill_finished, passing, plain
from benchmarks.probes import pinged
from benchmarks.report import Verdict, at_least, at_most
from benchmarks.sides import Side, add_bulk, sink, strings, timed
from benchmarks.trials import (
    WARM_UP_JOBS,
    Loaded,
    Server,
    cpu_seconds,
    fresh_server,
    load_latency,
    resume_and_wait,
    wait_until,
)
from benchmarks.workers import PEERS, QUEUE, Working, function, peer_process, peers

#: Our 99 % as a ratio to the better BullMQ worker's, and PING beside us as a ratio to PING beside BullMQ.
LOAD_TARGET: Final = 1.0
PING_TARGET: Final = 1.0
#: Jobs that are added in a second, as a ratio to those that should be.
PACE_TARGET: Final = 0.98
#: Sizes of chunks that are measured beside the default one, for information.
OTHER_CHUNKS: Final = (200, 50)
SLOTS, BULLMQ, OURS = "slots", "BullMQ", "spark_bull"

#: Prepares a verb on a server and yields the function that performs it.
Preparation = Callable[[Server], AbstractContextManager[Callable[[], object]]]


@dataclass(frozen=True)
class Size:
    """The size of each measurement. jobs: of each verb while another client sends PING."""

    rounds: int = 3
    jobs: int = 200_000
    per_second: int = 5_000
    seconds: int = 15
    concurrencies: tuple[int, ...] = (10, 50)


QUICK = Size(rounds=1, jobs=20_000, per_second=500, seconds=5, concurrencies=(50,))


@dataclass(frozen=True)
class Pinged:
    """PING times of another client, ms."""

    p50: float
    p99: float
    longest: float
    seconds: float
    server_us_per_job: float


# Each part prints its medians, and returns its results and verdicts.


def run_load(spark: SparkSession, size: Size) -> tuple[dict[str, Any], list[Verdict]]:
    workings = {f"{BULLMQ}, concurrency {n}": peers("bullmq_process.js", 1, n, "clock") for n in size.concurrencies}
    workings[SLOTS] = by_default(spark, "clock")
    trials = {name: partial(load_latency, working, size.per_second, size.seconds) for name, working in workings.items()}
    runs = in_turns(trials, size.rounds, _shown_load)
    found = medians(runs)
    print(f"\nfrom add to the processor's first line, {size.per_second:,} jobs/s")
    for name, run in found.items():
        print(f"{name:24}{_shown_load(name, run)}")
    return by_side(runs), load_verdicts(found, size.per_second)


def by_default(spark: SparkSession, kind: str, **options: Any) -> Working:
    """A Worker with its default options, except for these: all cores but one."""
    return function(spark, kind, slots=max(1, spark.sparkContext.defaultParallelism - 1), **options)


def load_verdicts(found: Mapping[str, Loaded], per_second: int) -> list[Verdict]:
    """Compares with the better of BullMQ's concurrencies."""
    theirs = min(run.p99 for name, run in found.items() if name.startswith(BULLMQ))
    pace = min(run.per_second for run in found.values())
    return [
        at_least("jobs added in a second, x those that should be", PACE_TARGET, pace / per_second),
        at_most("add to first line under load, p99, x BullMQ", LOAD_TARGET, found[SLOTS].p99 / theirs),
    ]


def run_ping(spark: SparkSession, size: Size) -> tuple[dict[str, Any], list[Verdict]]:
    sides = ping_sides(spark, size.jobs)
    for verb, of_verb in ping_sides(spark, WARM_UP_JOBS).items():
        # The session is shared by all rounds; peers are started for each measurement.
        ping(of_verb[OURS], WARM_UP_JOBS)
        print(f"warmed up: {verb}", flush=True)
    trials = {
        f"{verb}, {side}": partial(ping, prepare, size.jobs)
        for verb, of_verb in sides.items()
        for side, prepare in of_verb.items()
    }
    runs = in_turns(trials, size.rounds, _shown_ping)
    found = medians(runs)
    print(f"\nPING of another client, {size.jobs:,} jobs")
    for name, run in found.items():
        print(f"{name:24}{_shown_ping(name, run)}")
    return by_side(runs), ping_verdicts(found)


def ping_verdicts(found: Mapping[str, Pinged]) -> list[Verdict]:
    verbs = [name.removesuffix(f", {OURS}") for name in found if name.endswith(f", {OURS}")]
    return [
        at_most(
            f"{verb}, PING p99, x BullMQ", PING_TARGET, found[f"{verb}, {OURS}"].p99 / found[f"{verb}, {BULLMQ}"].p99
        )
        for verb in verbs
    ]


def ping(prepare: Preparation, jobs: int) -> Pinged:
    """Measures a verb on a fresh server while another client sends PING."""
    with fresh_server() as server, prepare(server) as run:
        cpu = cpu_seconds(server.client)
        with pinged(server.port) as pings:
            seconds = timed(run)
        server_us = (cpu_seconds(server.client) - cpu) / jobs * 1e6
        return Pinged(pings.p50, pings.p99, pings.longest, seconds, server_us)


# The verbs. Ours and the counterpart of BullMQ do the same with the same jobs.


def ping_sides(spark: SparkSession, jobs: int) -> dict[str, dict[str, Preparation]]:
    """The sides of each verb by name."""
    return {
        "dispatch": {
            OURS: partial(dispatching, sink(strings(spark, jobs), "exactly-once"), jobs),
            BULLMQ: partial(dispatching, add_bulk(1), jobs),
        },
        "inspect": {
            OURS: partial(inspecting, spark, jobs),
            BULLMQ: partial(paging, "wait", jobs),
        },
        "process": {
            OURS: partial(processing, by_default(spark, "noop"), jobs),
            **{
                f"chunk_size={chunk}": partial(processing, by_default(spark, "noop", chunk_size=chunk), jobs)
                for chunk in OTHER_CHUNKS
            },
            BULLMQ: partial(processing, peers("bullmq_process.js", 1, 50), jobs),
        },
        "collect": {
            OURS: partial(collecting, spark, jobs),
            BULLMQ: partial(paging, "completed", jobs),
        },
    }


@contextmanager
def dispatching(side: Side, jobs: int, server: Server) -> Iterator[Callable[[], object]]:
    with side(server.port, jobs) as run:
        yield run
    assert server.queue.counts()["wait"] == jobs, f"expected {jobs} jobs to wait, got {server.queue.counts()}"


@contextmanager
def inspecting(spark: SparkSession, jobs: int, server: Server) -> Iterator[Callable[[], object]]:
    server.queue.add_many(plain(jobs))
    frame: DataFrame = spark.read.format("bull").options(url=server.url, queue=QUEUE, states="wait").load()
    yield lambda: frame.write.format("noop").mode("overwrite").save()


@contextmanager
def paging(state: str, jobs: int, server: Server) -> Iterator[Callable[[], object]]:
    """BullMQ's getJobs, a thousand jobs a page, for both verbs that read."""
    if state == "completed":
        fill_finished(server.queue, jobs)
    else:
        server.queue.add_many(plain(jobs))
    with tempfile.TemporaryDirectory() as folder:
        command = ["node", str(PEERS / "bullmq_collect.js"), server.url, QUEUE, str(jobs), f"{folder}/jobs.json", state]
        with peer_process(command) as peer:
            peer.expect("ready")

            def run() -> None:
                peer.send("go")
                peer.expect("done")

            yield run
        with open(f"{folder}/jobs.json", "rb") as file:
            lines = sum(1 for _ in file)
        assert lines == jobs, f"expected {jobs} lines, got {lines}"


@contextmanager
def processing(working: Working, jobs: int, server: Server) -> Iterator[Callable[[], object]]:
    with working(server.url):
        server.queue.add_many(passing(WARM_UP_JOBS))
        wait_until(lambda: not any(server.queue.counts().values()))
        server.queue.pause()
        server.queue.add_many(plain(jobs))
        yield lambda: resume_and_wait(server, jobs)


@contextmanager
def collecting(spark: SparkSession, jobs: int, server: Server) -> Iterator[Callable[[], object]]:
    fill_finished(server.queue, jobs)
    with collects(spark, server.url, jobs) as run:
        yield run


def _shown_load(_name: str, run: Loaded) -> str:
    return (
        f"p50 {run.p50:7.2f} ms, p99 {run.p99:7.2f} ms, longest {run.longest:7.2f} ms, "
        f"{run.per_second:,.0f} jobs/s added"
    )


def _shown_ping(_name: str, run: Pinged) -> str:
    return (
        f"p50 {run.p50:6.2f} ms, p99 {run.p99:6.2f} ms, longest {run.longest:6.2f} ms, "
        f"{run.seconds:6.2f} s, {run.server_us_per_job:5.1f} us of Redis per job"
    )


PARTS: Mapping[str, Part[Size]] = {
    "load": run_load,
    "ping": run_ping,
}


if __name__ == "__main__":
    run_parts("latency", __doc__.splitlines()[0], PARTS, Size(), QUICK)
