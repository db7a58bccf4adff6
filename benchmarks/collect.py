"""Benchmark of collecting: Node, Python and a stream of spark_bull read the same finished jobs in turns.

    make bench            or   .venv/bin/python -m benchmarks.collect --only steady

Prints medians and writes them to benchmarks/results/collect.json. See benchmarks/README.md.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.collecting import (
    WARM_UP_JOBS,
    Collected,
    by_batch,
    by_discover,
    by_peer,
    by_read,
    by_spark,
    finished_queue,
)
from benchmarks.command import Part, run_parts
from benchmarks.process import by_side, in_turns, medians
from benchmarks.report import Verdict, at_least, at_most
from benchmarks.steady import Steady, steady
from benchmarks.trials import yardstick
from spark_bull.core.queue.collect.result_ledger import SLICES

#: Targets of benchmarks/README.md.
RATE_TARGET = 3.5
READ_TARGET = 2.0
SCRIPT_TARGET = 1.0
PACE_TARGET = 0.98
LAG_TARGET = 1.5
MEMORY_TARGET = 1.10

STREAM, BATCH, NODE, PYTHON = "stream into Parquet", "spark.read", "BullMQ, Node", "bullmq, Python"
DISCOVER, READ = "discover alone", "read alone"
#: How long the ledger keeps the ids of jobs, s: the default of lookbackMs and one slice of it.
WINDOW_S = 60 + 60 / SLICES


@dataclass(frozen=True)
class Size:
    """The size of each measurement."""

    rounds: int = 3
    jobs: int = 1_000_000
    #: Spark collects and reads so many before: the JVM compiles its code meanwhile. Peers warm up in each measurement.
    warm_up: int = 200_000
    #: For the part `started`.
    fewer_jobs: int = 300_000
    #: For the Python package, which would take minutes for all jobs.
    python_jobs: int = 100_000
    per_second: int = 5_000
    seconds: int = 180


QUICK = Size(rounds=1, jobs=20_000, warm_up=10_000, fewer_jobs=20_000, python_jobs=2_000, seconds=15)


def run_throughput(spark: SparkSession, size: Size) -> tuple[dict[str, Any], list[Verdict]]:
    with finished_queue(size.warm_up) as server:
        by_spark(spark, server, size.warm_up)
        by_batch(spark, server, size.warm_up)
    given = {
        STREAM: size.jobs,
        BATCH: size.jobs,
        NODE: size.jobs,
        PYTHON: size.python_jobs,
        DISCOVER: size.jobs,
        READ: size.jobs,
    }
    with finished_queue(size.jobs) as server:
        sides: dict[str, Callable[..., Collected]] = {
            STREAM: partial(by_spark, spark),
            BATCH: partial(by_batch, spark),
            NODE: partial(by_peer, spark, "bullmq_collect.js"),
            PYTHON: partial(by_peer, spark, "bullmq_collect.py"),
            DISCOVER: by_discover,
            READ: by_read,
        }
        trials = {name: partial(side, server, given[name]) for name, side in sides.items()}
        runs = in_turns(trials, size.rounds, lambda name, run: f"{given[name] / run.seconds:9,.0f} jobs/s")
    found = medians(runs)
    rates = {name: given[name] / run.seconds for name, run in found.items()}
    best = max(rates[NODE], rates[PYTHON])
    # CPU time is in us per job.
    print(f"\n{'':22}{'jobs/s':>9}{'x peers':>9}{'all CPU':>9}{'Redis':>7}{'Python':>8}{'JVM':>7}{'Node':>7}", end="")
    print(f"{'script p50':>15}{'longest':>11}")
    for name, run in found.items():
        used = f"{run.cpu_us:9.1f}{run.server_us_per_job:7.1f}{run.python_us:8.1f}{run.jvm_us:7.1f}{run.node_us:7.1f}"
        scripts = f"{run.script_p50_ms:12.2f} ms{run.script_longest_ms:8.2f} ms"
        print(f"{name:22}{rates[name]:9,.0f}{rates[name] / best:9.2f}{used}{scripts}")
    verdicts = [
        at_least(f"{STREAM}, x the better of Node and Python", RATE_TARGET, rates[STREAM] / best),
        at_least(f"{BATCH}, x the better of Node and Python", READ_TARGET, rates[BATCH] / best),
    ]
    return by_side(runs) | {"jobs_per_second": rates}, verdicts


def run_started(spark: SparkSession, size: Size) -> tuple[dict[str, Any], list[Verdict]]:
    """A query of fewer jobs, with its start, in a session that has collected before."""
    jobs = size.fewer_jobs
    with finished_queue(jobs) as server:
        by_spark(spark, server, jobs)
        sides: dict[str, Callable[..., Collected]] = {
            STREAM: partial(by_spark, spark, with_start=True),
            NODE: partial(by_peer, spark, "bullmq_collect.js"),
        }
        trials = {name: partial(side, server, jobs) for name, side in sides.items()}
        runs = in_turns(trials, size.rounds, lambda _, run: f"{jobs / run.seconds:9,.0f} jobs/s")
    found = medians(runs)
    ratio = found[NODE].seconds / found[STREAM].seconds
    return by_side(runs), [at_least(f"{STREAM}, {jobs:,} jobs with the start of the query, x Node", RATE_TARGET, ratio)]


def run_steady(spark: SparkSession, size: Size) -> tuple[dict[str, Any], list[Verdict]]:
    found = steady(spark, size.per_second, size.seconds)
    window = min(WINDOW_S * size.per_second, WARM_UP_JOBS + size.per_second * size.seconds)
    unread, source = found.unread(), [sample.source_mib for sample in found.samples]
    yard = yardstick()
    held = max(found.samples, key=lambda sample: sample.held_bytes)
    figures = {
        "per_second": found.per_second,
        "batches": len(found.batches),
        "largest_batch": max(rows for _, rows in found.batches),
        "unread_means": [statistics.mean(part) for part in parts(unread, 9)],
        "unread_highest": max(unread),
        "discover_p50_ms": found.discover_p50_ms,
        "discover_longest_ms": found.discover_longest_ms,
        "yardstick_longest_ms": yard.script_longest_ms,
        "source_mib_highest": [max(part) for part in parts(source, 9)],
        "held_bytes_highest": held.held_bytes,
        "held_bytes_per_job_of_window": held.held_bytes / window,
        "held_highest": max(sample.held for sample in found.samples),
    }
    for name, figure in figures.items():
        shown = figure if isinstance(figure, list) else [figure]
        print(f"{name:34}{' '.join(f'{number:,.1f}' for number in shown)}")
    return figures, steady_verdicts(size, found, window, yard.script_longest_ms)


def steady_verdicts(size: Size, found: Steady, window: float, yard_ms: float) -> list[Verdict]:
    """Compares the first third of the time with the last one: nothing must grow."""
    first, _, last = (statistics.mean(part) for part in parts(found.unread(), 3))
    before, _, after = (max(sample.source_mib for sample in part) for part in parts(found.samples, 3))
    # The ledger also has the jobs of the current batch and of the next one.
    bound = window + 2 * max(rows for _, rows in found.batches)
    return [
        at_least("jobs that finish, x of those that should", PACE_TARGET, found.per_second / size.per_second),
        at_most("unread, mean of the last minute, jobs", LAG_TARGET * first + size.per_second, last),
        at_most("discover, longest script, x yardstick", SCRIPT_TARGET, found.discover_longest_ms / yard_ms),
        at_most("memory of the source, last minute, MiB", MEMORY_TARGET * before, after),
        at_most("held by the ledger, jobs", bound, max(sample.held for sample in found.samples)),
    ]


def parts(values: Sequence[Any], count: int) -> list[Sequence[Any]]:
    """Splits `values` into `count` parts in order."""
    return [values[len(values) * i // count : len(values) * (i + 1) // count] for i in range(count)]


PARTS: Mapping[str, Part[Size]] = {
    "throughput": run_throughput,
    "started": run_started,
    "steady": run_steady,
}


if __name__ == "__main__":
    reports = {"spark.sql.streaming.numRecentProgressUpdates": "10000"}
    run_parts("collect", __doc__.splitlines()[0], PARTS, Size(), QUICK, **reports)
