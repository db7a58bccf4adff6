"""Reads the metrics of queues from Redis."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import Final

from spark_bull.core.clock import monotonic_s
from spark_bull.core.errors import PermissionDenied, SparkBullError
from spark_bull.core.model.limits import slots_for
from spark_bull.core.model.queues import JobStats
from spark_bull.core.options.parts import Options
from spark_bull.core.queue.dispatch.write_records import DEAD_AFTER_MS
from spark_bull.core.queue.handle.handle import QueueHandle, opening
from spark_bull.core.queue.jobs.read import counting
from spark_bull.core.queue.monitor.activity import COUNTED_STATES, observing, reading_metrics
from spark_bull.core.queue.monitor.find import QueueSummary, describing, select_queues, workers_among
from spark_bull.core.queue.monitor.stats import computing
from spark_bull.core.store.connection import Connection, ms_of
from spark_bull.core.store.round_trips import LargeRead, RoundTrips, run_together
from spark_bull.ops.prometheus import families
from spark_bull.ops.prometheus.families import Family, Sample

log = logging.getLogger("spark_bull")

_TOTALS: Final = {"completed": families.COMPLETED, "failed": families.FAILED}
_PERCENTS: Final = (50, 95, 99)
#: Writes, the last ones that have ended, that are looked at.
_NEWEST_WRITES: Final = 100
#: Time within which waiting jobs are to start by default, s.
TARGET_WAIT_S: Final = 30.0


def wanted_slots_of(stats: JobStats, window_ms: int, sample: int, target_wait_s: float) -> int:
    """The number of slots that keep up with the queue, and start the waiting jobs within `target_wait_s`.

    stats: of all jobs that the queue has, of this window and this sample. A slot processes one job at a time. While
    nothing is known of the duration of jobs, one slot is wanted.
    """
    waiting = stats.jobs.get("wait", 0) + stats.jobs.get("prioritized", 0)
    finished_per_s = stats.finished_per_s or 0.0
    # If not all jobs were read that have ended, the work is an estimate for all of them.
    ended = stats.timed if stats.timed < sample else max(stats.timed, finished_per_s * window_ms / 1_000)
    work_s = (stats.work_ms or 0) / 1_000
    busy = finished_per_s * work_s / ended if ended else 0.0
    for_backlog = slots_for(waiting, ended / work_s if work_s else None, target_wait_s)
    return max(ceil(max(busy, for_backlog)), int(waiting > 0 or stats.jobs.get("active", 0) > 0))


@dataclass(frozen=True)
class Export:
    """What is exported: queues by names and globs, and the statistics of their jobs.

    sample: number of jobs read of each state for statistics; 0: none. window_ms: their period. names: number of job
    names, those with most jobs, that have statistics of their own. limit_s: after this time, no more queues are read.
    target_wait_s: time within which waiting jobs are to start.
    """

    options: Options
    queues: tuple[str, ...]
    sample: int
    window_ms: int
    names: int
    limit_s: float = inf
    target_wait_s: float = TARGET_WAIT_S


@dataclass
class Scraped:
    """The last queue that was read; None: none. The next scrape begins behind it."""

    last: str | None = None

    def rest_first(self, queues: list[str]) -> list[str]:
        """The queues, those behind the last one first."""
        first = queues.index(self.last) + 1 if self.last in queues else 0
        return queues[first:] + queues[:first]


def collect(export: Export, scraped: Scraped | None = None) -> list[Sample]:
    """Reads the metrics. Raises ConnectionLost when Redis can't be reached.

    A queue that can't be read has one metric, which says so. It may have another dialect than `protocol`, or be on
    another node of a cluster. Queues for which there is no time have none, and are only counted.

    scraped: where to begin; it is updated.
    """
    scraped = scraped or Scraped()
    until_s = monotonic_s() + export.limit_s
    connection = Connection(export.options.redis)
    try:
        clients: Sequence[Mapping[str, str]] | None = connection.clients()
    except PermissionDenied as error:
        log.info("there is no metric of connected workers: %s", error)
        clients = None
    queues = scraped.rest_first(select_queues(connection, export.options.prefix, export.queues))
    samples: list[Sample] = []
    reads = [_samples(queue, export, clients) for queue in queues]
    results = run_together(connection, reads, until_s)
    unread = len(queues) - len(results)
    if unread:
        log.warning("%d of %d queues have no metrics: %g s were over", unread, len(queues), export.limit_s)
    samples.append(Sample(families.UNREAD, {}, unread))
    for queue, found in zip(queues, results, strict=False):
        scraped.last = queue
        if isinstance(found, SparkBullError):
            log.warning("queue %s has no metrics: %s", queue, found)
            found = []
        samples += [*found, Sample(families.READABLE, {"queue": queue}, int(bool(found)))]
    return samples


def _samples(queue: str, export: Export, clients: Sequence[Mapping[str, str]] | None) -> RoundTrips[list[Sample]]:
    """The metrics of one queue. clients: the connections of Redis; None: it does not tell them."""
    handle = yield from opening(export.options, queue)
    settings, jobs = (yield from describing(handle)), (yield from counting(handle))
    states = handle.dialect.counted_states(jobs, settings.version)
    samples = yield from _of_node(handle, states, jobs)
    samples += yield from _of_queue(handle, settings)
    if clients is not None and handle.dialect.has("client-names"):
        samples.append(Sample(families.WORKERS, {"queue": queue}, len(workers_among(clients, handle.keys))))
    if export.sample:
        found = yield from computing(handle, export.window_ms, export.sample)
        samples += _of_jobs(found, states, export.names)
        wanted = (
            0 if settings.paused else wanted_slots_of(found[0], export.window_ms, export.sample, export.target_wait_s)
        )
        samples.append(Sample(families.WANTED_SLOTS, {"queue": queue}, wanted))
    return samples


def _of_node(handle: QueueHandle, states: Mapping[str, str], jobs: Mapping[str, int]) -> RoundTrips[list[Sample]]:
    """The metrics that Node exports. states: names of states there."""
    queue = handle.keys.queue
    samples = [
        Sample(families.JOB_COUNT, {"queue": queue, "state": exported}, jobs[state])
        for state, exported in states.items()
    ]
    for state in COUNTED_STATES if handle.dialect.has("metrics") else ():
        found = yield from reading_metrics(handle, state, 0, 0)
        samples.append(Sample(_TOTALS[state], {"queue": queue}, found.count))
    return samples


def _of_queue(handle: QueueHandle, settings: QueueSummary) -> RoundTrips[list[Sample]]:
    busy = yield from observing(handle)
    now = ms_of((yield [("TIME",)])[0])
    unfinished, newest = yield [
        ("ZCOUNT", handle.keys["open_writes"], 0, now - DEAD_AFTER_MS),
        ("ZREVRANGE", handle.keys["finished_writes"], 0, _NEWEST_WRITES - 1),
    ]
    states = yield LargeRead(("HGET", handle.keys.write(write_id.decode()), "state") for write_id in newest)
    lag = 0.0 if busy.overdue_since is None else (now - busy.overdue_since) / 1_000
    values: dict[Family, float] = {
        families.ADDED: busy.ids,
        families.PAUSED: int(settings.paused),
        families.INTAKE_OPEN: int(settings.intake_open),
        families.OVERDUE: busy.overdue,
        families.OVERDUE_LAG: lag,
        families.OPEN_WRITES: unfinished,
        families.BROKEN_WRITES: states.count(b"broken"),
    }
    return [Sample(family, {"queue": handle.keys.queue}, value) for family, value in values.items()]


def _of_jobs(found: Sequence[JobStats], states: Mapping[str, str], names: int) -> Iterator[Sample]:
    """The statistics of all jobs, and of those with the most frequent names."""
    of_queue, *by_name = found
    labels = {"queue": of_queue.queue}
    # Without waiting jobs the age is 0, so that a graph of it falls.
    yield Sample(families.OLDEST, labels, (of_queue.oldest_waiting_ms or 0) / 1_000)
    if of_queue.added_per_s is not None:
        yield Sample(families.ADDED_RATE, labels, of_queue.added_per_s)
    if of_queue.finished_per_s is not None:
        yield Sample(families.FINISHED_RATE, labels, of_queue.finished_per_s)
    yield from _times(of_queue, labels)
    frequent = sorted(by_name, key=lambda one: sum(one.jobs.values()), reverse=True)[:names]
    for one in sorted(frequent, key=lambda one: one.name or ""):
        named = {**labels, "name": one.name or ""}
        for state, exported in states.items():
            yield Sample(families.JOBS_BY_NAME, {**named, "state": exported}, one.jobs.get(state, 0))
        yield from _times(one, named)


def _times(found: JobStats, labels: dict[str, str]) -> Iterator[Sample]:
    for family, percentiles in ((families.WAIT, found.wait), (families.RUN, found.run)):
        for percent in _PERCENTS if percentiles else ():
            seconds = getattr(percentiles, f"p{percent}") / 1_000
            yield Sample(family, {**labels, "percentile": str(percent)}, seconds)
