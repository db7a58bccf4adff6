"""Reads the metrics of queues from Redis."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from spark_bull.errors import SparkBullError
from spark_bull.model import JobStats
from spark_bull.options import Options
from spark_bull.prometheus import families
from spark_bull.prometheus.families import Family, Sample
from spark_bull.queue.activity import activity
from spark_bull.queue.find import QueueSummary, describe, select_queues, workers_among
from spark_bull.queue.handle import QueueHandle, open_handle
from spark_bull.queue.metrics import COUNTED_STATES, read_metrics
from spark_bull.queue.read import counts
from spark_bull.queue.stats import stats
from spark_bull.queue.writes import open_writes
from spark_bull.store.connection import Connection
from spark_bull.store.settings import settings_of

log = logging.getLogger("spark_bull")

_TOTALS: Final = {"completed": families.COMPLETED, "failed": families.FAILED}
_PERCENTS: Final = (50, 95, 99)


@dataclass(frozen=True)
class Export:
    """What is exported: queues by names and globs, and the statistics of their jobs.

    sample: number of jobs read of each state for statistics; 0: none. window_ms: their period. names: number of job
    names, those with most jobs, that have statistics of their own.
    """

    options: Options
    queues: tuple[str, ...]
    sample: int
    window_ms: int
    names: int


def collect(export: Export) -> list[Sample]:
    """Reads the metrics. Raises ConnectionLost when Redis can't be reached.

    A queue that can't be read, such as one of another dialect than `protocol`, has one metric, which says so.
    """
    connection = Connection(settings_of(export.options))
    clients = connection.clients()
    samples: list[Sample] = []
    for queue in select_queues(connection, export.options["prefix"], export.queues):
        try:
            of_queue = list(_samples(queue, export, clients))
        except SparkBullError as error:
            connection.call("PING")
            log.warning("queue %s has no metrics: %s", queue, error)
            of_queue = []
        samples += [*of_queue, Sample(families.READABLE, {"queue": queue}, int(bool(of_queue)))]
    return samples


def _samples(queue: str, export: Export, clients: Sequence[Mapping[str, str]]) -> Iterator[Sample]:
    """The metrics of one queue. clients: the connections of Redis."""
    handle = open_handle(export.options, queue)
    settings, jobs = describe(handle), counts(handle)
    states = handle.dialect.counted_states(jobs, settings.version)
    yield from _of_node(handle, states, jobs)
    yield from _of_queue(handle, settings, len(workers_among(clients, handle.keys)))
    if export.sample:
        yield from _of_jobs(handle, states, export)


def _of_node(handle: QueueHandle, states: Mapping[str, str], jobs: Mapping[str, int]) -> Iterator[Sample]:
    """The metrics that Node exports. states: names of states there."""
    queue = handle.keys.queue
    for state, exported in states.items():
        yield Sample(families.JOB_COUNT, {"queue": queue, "state": exported}, jobs[state])
    for state in COUNTED_STATES if handle.dialect.has_metrics else ():
        yield Sample(_TOTALS[state], {"queue": queue}, read_metrics(handle, state, 0, 0).count)


def _of_queue(handle: QueueHandle, settings: QueueSummary, connected: int) -> Iterator[Sample]:
    busy = activity(handle)
    lag = 0.0 if busy.overdue_since is None else (handle.connection.now_ms() - busy.overdue_since) / 1_000
    values: dict[Family, float] = {
        families.ADDED: busy.ids,
        families.PAUSED: int(settings.paused),
        families.INTAKE_OPEN: int(settings.intake_open),
        families.OVERDUE: busy.overdue,
        families.OVERDUE_LAG: lag,
        families.WORKERS: connected,
        families.OPEN_WRITES: len(open_writes(handle)),
    }
    for family, value in values.items():
        yield Sample(family, {"queue": handle.keys.queue}, value)


def _of_jobs(handle: QueueHandle, states: Mapping[str, str], export: Export) -> Iterator[Sample]:
    """The statistics of all jobs, and of those with the most frequent names."""
    of_queue, *by_name = stats(handle, export.window_ms, export.sample)
    labels = {"queue": of_queue.queue}
    # Without waiting jobs the age is 0, so that a graph of it falls.
    yield Sample(families.OLDEST, labels, (of_queue.oldest_waiting_ms or 0) / 1_000)
    if of_queue.added_per_s is not None:
        yield Sample(families.ADDED_RATE, labels, of_queue.added_per_s)
    if of_queue.finished_per_s is not None:
        yield Sample(families.FINISHED_RATE, labels, of_queue.finished_per_s)
    yield from _times(of_queue, labels)
    frequent = sorted(by_name, key=lambda one: sum(one.jobs.values()), reverse=True)[: export.names]
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
