"""Benchmark of processing: workers of Node, Python and spark_bull on fresh servers in turns.

    make bench            or   .venv/bin/python -m benchmarks.process --only idle lateness

Prints medians and writes them to benchmarks/results/process.json. See benchmarks/README.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.command import Part, T, by_side, in_turns, medians, run_parts
from benchmarks.report import Verdict, at_least, at_most
from benchmarks.trials import (
    Processed,
    Shared,
    Waited,
    cancel_latency,
    idle_latency,
    lateness,
    promotion,
    tenants,
    throughput,
    work_scripts,
    yardstick,
)
from benchmarks.workers import CANCELLED, frames, function, peers
from spark_bull.run.slot.termination import READ_S

#: Rate of a slot with a function of DataFrames, as a ratio to a query's.
FRAMES_TARGETS = {"noop": 0.7, "join": 0.9}
IDLE_TARGET = 2.0
LATENESS_TARGET = 0.5
#: Rate of jobs that wait for 100 ms, CONCURRENCY at a time, as a ratio to BullMQ's.
WAITING_TARGET = 0.95
CONCURRENCY = 100
#: Latency of a small tenant beside a big one, as a ratio to that when it is alone.
TENANT_TARGET = 2.0
#: Time from cancel() to the end of the function, as a ratio to the interval at which slots look for such requests.
CANCEL_TARGET = 2.0
#: Redis' CPU time per promoted job in plain commands; longest script as a ratio to the longest of `yardstick`.
PROMOTION_TARGET, SCRIPT_TARGET = 17.0, 1.0

#: Values of the option `events` that leave out some.
FEWER_EVENTS = ("ends", "none")
OURS, BULLMQ, YARDSTICK = "spark_bull", "BullMQ", "yardstick"
ALONE, BESIDE = "alone", "beside the big tenant"
#: Dialects whose scripts are replayed, and the sizes of their chunks.
PROTOCOLS, CHUNKS = ("bullmq", "bull", "bull-1"), (200, 100, 50)
#: Jobs of the big tenant for each one of the small tenant.
BACKLOG = 100


@dataclass(frozen=True)
class Size:
    """The size of each measurement."""

    rounds: int = 3
    jobs: int = 100_000
    concurrencies: tuple[int, ...] = (10, 50, 100)
    waiting: int = 10_000
    #: Jobs of the small tenant; the big one has BACKLOG times as many.
    tenant_jobs: int = 200
    cancelled: int = 100
    pings: int = 500
    due: int = 3_000
    pending: int = 100_000
    overdue: int = 1_000_000
    #: Jobs of each dialect whose scripts are replayed.
    replayed: int = 40_000


QUICK = Size(
    rounds=1,
    jobs=20_000,
    concurrencies=(50,),
    waiting=2_000,
    tenant_jobs=20,
    cancelled=5,
    pings=100,
    due=500,
    pending=5_000,
    overdue=50_000,
    replayed=4_000,
)


# The trials of each part, and their verdicts.


def waiting_verdicts(rates: Mapping[str, float]) -> list[Verdict]:
    """rates: jobs/s by side."""
    ours = {name: rate for name, rate in rates.items() if name != BULLMQ}
    return [at_least(f"{name}, x BullMQ", WAITING_TARGET, rate / rates[BULLMQ]) for name, rate in ours.items()]


def idle_verdicts(found: Mapping[str, Waited]) -> list[Verdict]:
    ours, theirs = found[OURS], found[BULLMQ]
    return [
        at_most("idle, add to first line, p50 ms", IDLE_TARGET * theirs.p50, ours.p50),
        at_most("idle, add to first line, p99 ms", IDLE_TARGET * theirs.p99, ours.p99),
    ]


def tenant_verdicts(found: Mapping[str, Shared]) -> list[Verdict]:
    """found: by protocol, alone and beside the big tenant."""
    beside = {name: run for name, run in found.items() if name.endswith(BESIDE)}
    alone = {name: found[name.replace(BESIDE, ALONE)] for name in beside}
    return [at_most(f"{name}, p99, x alone", TENANT_TARGET, run.p99 / alone[name].p99) for name, run in beside.items()]


def cancel_verdicts(found: Mapping[str, Waited]) -> list[Verdict]:
    limit_ms = CANCEL_TARGET * READ_S * 1000
    return [at_most(f"cancel, {name}, p99 ms", limit_ms, run.p99) for name, run in found.items()]


def lateness_verdicts(found: Mapping[str, Waited]) -> list[Verdict]:
    """Compares with the best of BullMQ's concurrencies."""
    theirs = min(waited.p99 for name, waited in found.items() if name != OURS)
    return [at_most("lateness of delayed jobs, p99 ms", LATENESS_TARGET * theirs, found[OURS].p99)]


def promotion_verdicts(ours: Processed, yard: Processed) -> list[Verdict]:
    commands = ours.server_us_per_job / yard.server_us_per_job
    longest = ours.script_longest_ms / yard.script_longest_ms
    return [
        at_most("promotion, CPU time of Redis a job, plain commands", PROMOTION_TARGET, commands),
        at_most("promotion, longest script, x yardstick", SCRIPT_TARGET, longest),
    ]


# Each part prints its medians, and returns its results and verdicts.


def run_frames(spark: SparkSession, size: Size) -> tuple[dict[str, Any], list[Verdict]]:
    """A function of DataFrames that does nothing, and one that joins the payloads with a table; a slot and a query."""
    kinds, ways = ("noop", "join"), ("slot", "query")
    sides = [(kind, way) for kind in kinds for way in ways]
    trials = {f"{kind}, {way}": partial(throughput, frames(spark, way, kind), size.jobs) for kind, way in sides}
    for trial in trials.values():
        trial()
    runs = in_turns(trials, size.rounds, lambda _, run: f"{size.jobs / run.seconds:9,.0f} jobs/s")
    rates = {name: size.jobs / run.seconds for name, run in medians(runs).items()}
    verdicts = [
        at_least(f"{kind}, slot, x query", FRAMES_TARGETS[kind], rates[f"{kind}, slot"] / rates[f"{kind}, query"])
        for kind in kinds
    ]
    return by_side(runs) | {"jobs_per_second": rates}, verdicts


def run_waiting(spark: SparkSession, size: Size) -> tuple[dict[str, Any], list[Verdict]]:
    """Jobs that wait for 100 ms, as for a slow service; one process each, CONCURRENCY jobs at a time."""
    workings = {
        BULLMQ: peers("bullmq_process.js", 1, CONCURRENCY, "wait"),
        "threads": function(spark, "wait", slots=1, concurrency=CONCURRENCY),
        "coroutines": function(spark, "wait, coroutine", slots=1, concurrency=CONCURRENCY),
    }
    trials = {name: partial(throughput, working, size.waiting) for name, working in workings.items()}
    runs = in_turns(trials, size.rounds, lambda _, run: f"{size.waiting / run.seconds:9,.0f} jobs/s")
    rates = {name: size.waiting / run.seconds for name, run in medians(runs).items()}
    return by_side(runs) | {"jobs_per_second": rates}, waiting_verdicts(rates)


def run_idle(spark: SparkSession, size: Size) -> tuple[dict[str, Any], list[Verdict]]:
    workings = {BULLMQ: peers("bullmq_process.js", 1, 1, "clock"), OURS: function(spark, "clock", slots=1)}
    trials = {name: partial(idle_latency, working, size.pings) for name, working in workings.items()}
    runs = in_turns(trials, size.rounds, _shown_wait)
    found = medians(runs)
    _show("from add to the processor's first line, idle", found, _shown_wait)
    return by_side(runs), idle_verdicts(found)


def run_tenants(spark: SparkSession, size: Size) -> tuple[dict[str, Any], list[Verdict]]:
    """A tenant with BACKLOG times as many jobs, all of them queued; both run two jobs of 20 ms at a time."""
    options: dict[str, Any] = {"slots": 2, "concurrency": 2, "group": {"by": "tenant", "concurrency": 2}}
    trials = {}
    for protocol in ("bullmq", "bull"):
        working = function(spark, "tenant", protocol=protocol, **options)
        trial = partial(tenants, working, size.tenant_jobs, protocol=protocol)
        trials[f"{protocol}, {ALONE}"] = partial(trial, backlog=0)
        trials[f"{protocol}, {BESIDE}"] = partial(trial, backlog=BACKLOG * size.tenant_jobs)
    runs = in_turns(trials, size.rounds, _shown_shared)
    found = medians(runs)
    _show("from add to the end of the job", found, _shown_shared)
    return by_side(runs), tenant_verdicts(found)


def run_cancel(spark: SparkSession, size: Size) -> tuple[dict[str, Any], list[Verdict]]:
    workings = {
        "one at a time": function(spark, CANCELLED, slots=1),
        "threads": function(spark, CANCELLED, slots=1, concurrency=2),
        "coroutines": function(spark, f"{CANCELLED}, coroutine", slots=1, concurrency=2),
    }
    trials = {name: partial(cancel_latency, working, size.cancelled) for name, working in workings.items()}
    runs = in_turns(trials, 1, _shown_wait)
    found = medians(runs)
    _show("from cancel() to the end of the function", found, _shown_wait)
    return by_side(runs), cancel_verdicts(found)


def run_lateness(spark: SparkSession, size: Size) -> tuple[dict[str, Any], list[Verdict]]:
    workings = {f"{BULLMQ}, 1 x {n}": peers("bullmq_process.js", 1, n, "clock") for n in (1, *size.concurrencies)}
    workings[OURS] = function(spark, "clock")
    trials = {name: partial(lateness, working, size.due, size.pending) for name, working in workings.items()}
    runs = in_turns(trials, size.rounds, _shown_wait)
    found = medians(runs)
    _show("from when it is due to the processor's first line", found, _shown_wait)
    return by_side(runs), lateness_verdicts(found)


def run_promotion(_spark: SparkSession, size: Size) -> tuple[dict[str, Any], list[Verdict]]:
    runs = in_turns({OURS: partial(promotion, size.overdue), YARDSTICK: yardstick}, size.rounds, _shown_scripts)
    found = medians(runs)
    print(f"\npromotion: {size.overdue / found[OURS].seconds:,.0f} jobs/s")
    return by_side(runs), promotion_verdicts(found[OURS], found[YARDSTICK])


def run_scripts(_spark: SparkSession, size: Size) -> tuple[dict[str, Any], list[Verdict]]:
    trials = {
        f"{protocol}, chunks of {chunk}": partial(work_scripts, protocol, size.replayed, chunk)
        for protocol in PROTOCOLS
        for chunk in CHUNKS
    }
    for events in FEWER_EVENTS:
        name = f"bullmq, chunks of {CHUNKS[0]}, {events}"
        trials[name] = partial(work_scripts, "bullmq", size.replayed, CHUNKS[0], events)
    runs = in_turns(trials, size.rounds, _shown_scripts)
    _show("claim and settle, one client without Spark", medians(runs), _shown_scripts)
    return by_side(runs), []


def _shown_scripts(_name: str, run: Processed) -> str:
    return (
        f"{run.seconds:9.2f} s, {run.server_us_per_job:6.2f} us of Redis each, script p50 {run.script_p50_ms:.2f} ms, "
        f"longest {run.script_longest_ms:.2f} ms"
    )


def _shown_wait(_name: str, run: Waited) -> str:
    return f"p50 {run.p50:7.2f} ms, p99 {run.p99:7.2f} ms, longest {run.longest:7.2f} ms"


def _shown_shared(name: str, run: Shared) -> str:
    return f"{_shown_wait(name, run)}, first {run.first:7.2f} ms"


def _show(what: str, found: Mapping[str, T], shown: Callable[[str, T], str]) -> None:
    print(f"\n{what}")
    for name, run in found.items():
        print(f"{name:34}{shown(name, run)}")


PARTS: Mapping[str, Part[Size]] = {
    "frames": run_frames,
    "waiting": run_waiting,
    "tenants": run_tenants,
    "cancel": run_cancel,
    "idle": run_idle,
    "lateness": run_lateness,
    "promotion": run_promotion,
    "scripts": run_scripts,
}


if __name__ == "__main__":
    run_parts("process", __doc__.splitlines()[0], PARTS, Size(), QUICK)
