"""Benchmark of collecting: Node, Python and a stream of spark_bull read the same finished jobs in turns.

    make bench            or   .venv/bin/python -m benchmarks.collect --only started

Prints medians and writes them to benchmarks/results/collect.json. See benchmarks/README.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.collecting import (
    Collected,
    by_batch,
    by_discover,
    by_peer,
    by_read,
    by_spark,
    finished_queue,
)
from benchmarks.command import Part, by_side, in_turns, medians, run_parts
from benchmarks.report import Verdict, at_least

#: The least ratios to the best rate of Node and Python.
RATE_TARGET = 3.2
READ_TARGET = 2.0

STREAM, BATCH, NODE, PYTHON = "stream into Parquet", "spark.read", "BullMQ, Node", "bullmq, Python"
DISCOVER, READ = "discover alone", "read alone"


@dataclass(frozen=True)
class Size:
    """The size of each measurement."""

    rounds: int = 3
    jobs: int = 1_000_000
    #: Jobs that Spark collects first, while the JVM compiles its code. Peers warm up in each measurement.
    warm_up: int = 200_000
    #: For the part `started`.
    fewer_jobs: int = 300_000
    #: For the Python package, which would take minutes for all jobs.
    python_jobs: int = 100_000


QUICK = Size(rounds=1, jobs=20_000, warm_up=10_000, fewer_jobs=20_000, python_jobs=2_000)


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


PARTS: Mapping[str, Part[Size]] = {
    "throughput": run_throughput,
    "started": run_started,
}


if __name__ == "__main__":
    reports = {"spark.sql.streaming.numRecentProgressUpdates": "10000"}
    run_parts("collect", __doc__.splitlines()[0], PARTS, Size(), QUICK, **reports)
