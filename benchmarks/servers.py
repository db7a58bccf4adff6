"""Benchmark of two servers, the oldest Redis and the newest Valkey: our verbs and BullMQ's, in turns in one run.

    .venv/bin/python -m benchmarks.servers --only work

See benchmarks/README.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from typing import Any, Final

from pyspark.sql import SparkSession

from benchmarks.collecting import Collected, by_batch, by_peer, by_spark, finished_queue
from benchmarks.command import Part, in_turns, run_parts
from benchmarks.dispatch import check, measure
from benchmarks.report import Verdict, at_least
from benchmarks.sides import add_bulk, sink, structs
from benchmarks.working import BULLMQ, FIRST, running, sides_of
from tools.servers import NEWEST, OLDEST, VARIABLE, Server

SERVERS: Final = (OLDEST, NEWEST)
PEER: Final = "BullMQ"
#: The least ratios to BullMQ's rate on the same server: a little less than benchmarks/README.md has.
TARGETS: Final = {
    "exactly once, STRUCT": 2.2,
    "slots, function": 2.3,
    "slots, UDF": 2.6,
    "stream into Parquet": 2.0,
    "`spark.read`": 3.0,
}
#: Jobs before the first measurement of a worker.
WARM_UP: Final = 60_000


@dataclass(frozen=True)
class Size:
    """Rounds of each part, and jobs of a measurement."""

    rounds: int = 3
    jobs: int = 100_000


@dataclass(frozen=True)
class Figures:
    """CPU time per job, µs: of the server, and of all processes."""

    rate: float
    server_us: float
    all_us: float


Runs = dict[str, list[Figures]]
Found = tuple[dict[str, Any], list[Verdict]]


@contextmanager
def starting(server: Server) -> Iterator[None]:
    """Lets all servers that the block starts be of this version."""
    os.environ[VARIABLE] = str(server.executable)
    try:
        yield
    finally:
        del os.environ[VARIABLE]


def name_of(side: str, server: Server) -> str:
    return f"{side}, {server.name}"


def measured(trials: Mapping[str, Callable[[], Figures]], rounds: int) -> Found:
    runs: Runs = in_turns(trials, rounds, lambda _, run: f"{run.rate:9,.0f} jobs/s")
    return {name: [asdict(run) for run in of_one] for name, of_one in runs.items()}, show(runs)


def show(runs: Runs) -> list[Verdict]:
    """Prints a row of the table of benchmarks/README.md for each side: medians, and of the ratios within a round.

    Returns the verdicts on these ratios.
    """
    verdicts = []
    print("\n| |" + "".join(f" {server.name}: jobs/s | x BullMQ | server | all |" for server in SERVERS))
    for side in dict.fromkeys(name.rpartition(",")[0] for name in runs):
        cells = []
        for server in SERVERS:
            own, peer = runs[name_of(side, server)], runs[name_of(PEER, server)]
            ratio = median(one.rate / other.rate for one, other in zip(own, peer, strict=True))
            rate, server_us, all_us = (median(getattr(run, what) for run in own) for what in asdict(own[0]))
            if side in TARGETS:
                verdicts.append(at_least(f"{name_of(side, server)}, x BullMQ", TARGETS[side], ratio))
            cells += [f"{round(rate, -2):,.0f}", f"{ratio:.1f} x", f"{server_us:.1f} µs", f"{all_us:.1f} µs"]
        print(f"| {side} | {' | '.join(cells)} |")
    return verdicts


def run_dispatch(spark: SparkSession, size: Size) -> Found:
    sides = {"exactly once, STRUCT": sink(structs(spark, size.jobs).cache(), "exactly-once"), PEER: add_bulk(2)}

    def figures(side: str, server: Server) -> Figures:
        with starting(server):
            run = measure(sides[side], size.jobs, check)
        return Figures(size.jobs / run.seconds, run.server_us_per_job, run.cpu_us_per_job)

    # The first write computes the frame.
    figures("exactly once, STRUCT", NEWEST)
    trials = {name_of(side, server): partial(figures, side, server) for side in sides for server in SERVERS}
    return measured(trials, size.rounds)


def run_work(_: SparkSession, size: Size) -> Found:
    sides = sides_of(["slots, function", "slots, UDF"], None, [])
    with ExitStack() as stack:
        workers = {}
        for side, program in sides.items():
            for server in SERVERS:
                with starting(server):
                    worker = stack.enter_context(running(program))
                workers[name_of(PEER if side == BULLMQ else side, server)] = worker
                for jobs in (FIRST, WARM_UP):
                    worker.warm_up(jobs)

        def figures(name: str) -> Figures:
            used = workers[name].measured(size.jobs)
            return Figures(used.rate, used.redis, used.all)

        return measured({name: partial(figures, name) for name in workers}, size.rounds)


def run_collect(spark: SparkSession, size: Size) -> Found:
    sides: dict[str, Callable[..., Collected]] = {
        "stream into Parquet": partial(by_spark, spark),
        "`spark.read`": partial(by_batch, spark),
        PEER: partial(by_peer, spark, "bullmq_collect.js"),
    }
    with ExitStack() as stack:
        queues = {}
        for server in SERVERS:
            with starting(server):
                queues[server] = stack.enter_context(finished_queue(size.jobs))

        def figures(side: str, server: Server) -> Figures:
            run = sides[side](queues[server], size.jobs)
            return Figures(size.jobs / run.seconds, run.server_us_per_job, run.cpu_us)

        figures("stream into Parquet", NEWEST)
        trials = {name_of(side, server): partial(figures, side, server) for side in sides for server in SERVERS}
        return measured(trials, size.rounds)


PARTS: Mapping[str, Part[Size]] = {"dispatch": run_dispatch, "work": run_work, "collect": run_collect}


if __name__ == "__main__":
    for one in SERVERS:
        one.fetch()
    reports = {"spark.sql.streaming.numRecentProgressUpdates": "10000"}
    run_parts("servers", __doc__.splitlines()[0], PARTS, Size(), Size(rounds=1, jobs=10_000), **reports)
