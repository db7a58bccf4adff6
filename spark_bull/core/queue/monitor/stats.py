"""Statistics of a queue and of its jobs by name: numbers, waiting and run times, rates.

Redis keeps none of them: they are computed from jobs that are kept, of which at most a sample is read, from the metrics
of workers, and from the event stream of BullMQ.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from statistics import quantiles
from typing import Final, NamedTuple

from spark_bull.core.dialects.fields import FIELDS, value_of
from spark_bull.core.errors import expected
from spark_bull.core.model.jobs import MINUTE_MS, JobStats, Percentiles
from spark_bull.core.queue.events.recent_events import recent_events
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.handle.job_fields import Columns, raw_column
from spark_bull.core.queue.jobs.read import counting
from spark_bull.core.queue.monitor.metrics import COUNTED_STATES, reading_metrics
from spark_bull.core.queue.monitor.samples import Part, sampling
from spark_bull.core.store.connection import ms_of
from spark_bull.core.store.steps import Steps, run

#: The period of finished jobs and rates, ms, and the number of jobs read of each state.
WINDOW_MS: Final = 3_600_000
SAMPLE: Final = 10_000
#: A backlog that is drained later is not forecast: ten years.
MAX_FORECAST_MS: Final = 10 * 365 * 86_400_000
#: The states of jobs that a worker could start.
WAITING: Final = ("wait", "paused", "prioritized")
_COLUMNS: Final = ("name", "timestamp", "processedOn", "finishedOn")


class _Rate(NamedTuple):
    """A number of jobs in a period, ms."""

    jobs: float
    over_ms: int

    @property
    def per_s(self) -> float:
        return self.jobs * 1_000 / self.over_ms


class _Sampled(NamedTuple):
    """A job that was read, which stands for `weight` ones. Times are ms since 1970."""

    weight: float
    name: str
    created_on: int | None
    started_on: int | None
    finished_on: int | None


@dataclass
class _Tally:
    """What is counted of the jobs of one name, or of all. added, finished: in their windows, as far as is known."""

    jobs: dict[str, float] = field(default_factory=dict)
    oldest_on: int | None = None
    waits: list[int] = field(default_factory=list)
    runs: list[int] = field(default_factory=list)
    added: float = 0
    finished: float = 0
    work_ms: float = 0

    def count(self, state: str, job: _Sampled) -> None:
        self.jobs[state] = self.jobs.get(state, 0) + job.weight
        if state in WAITING and job.created_on is not None:
            self.oldest_on = min(job.created_on, job.created_on if self.oldest_on is None else self.oldest_on)

    def count_added(self, job: _Sampled, since: int, now: int) -> None:
        self.added += job.weight * (job.created_on is not None and since <= job.created_on <= now)

    def count_finished(self, job: _Sampled, since: int) -> None:
        self.finished += job.weight * ((job.finished_on or 0) >= since)
        if job.created_on is not None and job.started_on is not None and job.finished_on is not None:
            # The clocks of the machines can differ.
            self.waits.append(max(0, job.started_on - job.created_on))
            self.runs.append(max(0, job.finished_on - job.started_on))
            self.work_ms += job.weight * self.runs[-1]


def stats(handle: QueueHandle, window_ms: int = WINDOW_MS, sample: int = SAMPLE) -> list[JobStats]:
    """The statistics of all jobs, then of those of each name. At most `sample` jobs of each state are read.

    window_ms: period of the finished jobs whose times count, and of the rates. Raises OptionError.
    """
    return run(handle.connection, computing(handle, window_ms, sample))


def computing(handle: QueueHandle, window_ms: int = WINDOW_MS, sample: int = SAMPLE) -> Steps[list[JobStats]]:
    """The steps of `stats`."""
    for argument, value in (("window_ms", window_ms), ("sample", sample)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise expected(argument, "a positive integer", value)
    (time,) = yield [("TIME",)]
    now, has_times = ms_of(time), handle.dialect.has("finish-times")
    since = now - window_ms
    # Before jobs of any queue are sampled, which takes time: rates are of the window, which ends now.
    counted = yield from _counted(handle, since, now)
    events = (yield from recent_events(handle, now, window_ms)) if handle.dialect.has("event-stream") else None
    ended = (yield from _ended(handle, since, now)) if has_times else {}
    # Each of these sources can lack jobs: of workers without metrics, of trimmed events, and removed ones.
    sources = (counted, events and _Rate(events.finished, events.over_ms))
    shown = next((rate for rate in sources if rate and rate.jobs), None)
    finished_over_ms = shown.over_ms if shown else window_ms
    totals = yield from counting(handle)
    parts = [Part(state, total, sample) for state, total in totals.items()]
    sampled = yield from sampling(handle, [*parts, *_parts_of(ended, sample)], _COLUMNS)
    of_queue, by_name = _Tally(), defaultdict[str, _Tally](_Tally)
    for (state, total, _), columns in zip(parts, sampled, strict=False):
        for job in _jobs(columns, total, sample):
            for tally in (of_queue, by_name[job.name]):
                tally.count(state, job)
                if state not in COUNTED_STATES or not has_times:
                    tally.count_added(job, since, now)
    for part, columns in zip(_parts_of(ended, sample), sampled[len(parts) :], strict=True):
        for job in _jobs(columns, part.among, part.most):
            for tally in (of_queue, by_name[job.name]):
                tally.count_finished(job, now - finished_over_ms)
                tally.count_added(job, since, now)
    of_queue.jobs = dict(totals)
    added_over_ms = window_ms
    # Without any, they were trimmed or left out.
    if events and events.added:
        added_over_ms, of_queue.added = events.over_ms, events.added.total()
        for one in by_name.keys() | events.added.keys():
            by_name[one].added = events.added[one]
    by_name.pop("", None)
    is_estimate = max(totals.values()) > sample

    def result(name: str | None, tally: _Tally) -> JobStats:
        added = _Rate(tally.added, added_over_ms)
        finished = _Rate(tally.finished, finished_over_ms) if has_times else None
        if name is None:
            finished = shown or finished
        return JobStats(
            handle.keys.queue,
            name,
            {state: round(jobs) for state, jobs in tally.jobs.items()},
            is_estimate and name is not None,
            None if tally.oldest_on is None else max(0, now - tally.oldest_on),
            len(tally.runs),
            percentiles(tally.waits),
            percentiles(tally.runs),
            round(tally.work_ms) if has_times else None,
            added.per_s,
            added.over_ms,
            finished and finished.per_s,
            finished and finished.over_ms,
            _drained_in_ms(sum(tally.jobs.get(state, 0) for state in WAITING), added, finished),
        )

    return [result(None, of_queue), *(result(name, by_name[name]) for name in sorted(by_name))]


def _drained_in_ms(waiting: float, added: _Rate, finished: _Rate | None) -> int | None:
    """In how many ms no job waits any more at these rates; None: never, or the rate of finished jobs is unknown."""
    if not waiting:
        return 0
    excess = finished.per_s - added.per_s if finished else 0
    # Rates are estimates: a tiny difference of two says nothing, and its inverse would exceed a column.
    ms = waiting * 1_000 / excess if excess > 0 else inf
    return round(ms) if ms < MAX_FORECAST_MS else None


def percentiles(durations: Sequence[int]) -> Percentiles | None:
    """The percentiles of some durations, interpolated as by `quantile` of pandas; None if there are none."""
    if not durations:
        return None
    # Python before 3.13 refuses a single value.
    at = quantiles(durations if len(durations) > 1 else [*durations] * 2, n=100, method="inclusive")
    return Percentiles(at[49], at[94], at[98])


def _jobs(columns: Columns, among: int, sample: int) -> Iterator[_Sampled]:
    """The jobs of a sample of `among` ones."""
    names, *times = ([value_of(FIELDS[name], raw) for raw in raw_column(columns, name)] for name in _COLUMNS)
    weight = among / len(names) if among > sample and names else 1.0
    for name, created, started, finished in zip(names, *times, strict=True):
        yield _Sampled(weight, name or "", created, started, finished)


def _ended(handle: QueueHandle, since: int, now: int) -> Steps[dict[str, int]]:
    """The numbers of the jobs that have ended in this period and are kept, of each state that has some."""
    replies = yield [("ZCOUNT", handle.keys[state], since, now) for state in COUNTED_STATES]
    return {state: jobs for state, jobs in zip(COUNTED_STATES, map(int, replies), strict=True) if jobs}


def _parts_of(ended: Mapping[str, int], sample: int) -> list[Part]:
    """At most `sample` of the jobs that have ended last, of each state its part."""
    total = sum(ended.values())
    return [Part(state, jobs, max(1, min(jobs, sample * jobs // total))) for state, jobs in ended.items()]


def _counted(handle: QueueHandle, since: int, now: int) -> Steps[_Rate | None]:
    """The rate of ended jobs that the metrics of workers show, or None if there are none."""
    if not handle.dialect.has("metrics"):
        return None
    minutes = Counter[int]()
    for state in COUNTED_STATES:
        found = yield from reading_metrics(handle, state, 0, (now - since) // MINUTE_MS)
        minutes.update(found.minutes)
    if not minutes:
        return None
    whole = min(-(-since // MINUTE_MS), now // MINUTE_MS) * MINUTE_MS
    first = max(whole, min(minutes))
    return _Rate(sum(jobs for minute, jobs in minutes.items() if minute >= first), max(1, now - first))
