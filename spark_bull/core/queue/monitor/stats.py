"""Statistics of a queue and of its jobs by name: numbers, waiting and run times, rates.

Redis keeps none of them. They are computed from jobs that are kept, of which at most a sample is read, from the metrics
of workers, and from the event stream of BullMQ.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from statistics import quantiles
from typing import Final, NamedTuple

from spark_bull.core.dialects.fields import FIELDS, Raw, value_of
from spark_bull.core.errors import DialectError, expected
from spark_bull.core.model.queues import MINUTE_MS, JobStats, Percentiles
from spark_bull.core.queue.events.event_log import recent_events
from spark_bull.core.queue.handle.handle import CHUNK_SIZE, SAMPLE, WINDOW_MS, QueueHandle
from spark_bull.core.queue.handle.job_fields import Columns, raw_column
from spark_bull.core.queue.jobs.read import counting, hash_fields
from spark_bull.core.queue.monitor.activity import COUNTED_STATES, reading_metrics
from spark_bull.core.store.connection import ms_of
from spark_bull.core.store.round_trips import LargeRead, RoundTrips, run
from spark_bull.core.store.scripts import Command

#: A queue with at most this number of sampled jobs shares its round trips with other queues.
_FEW: Final = 20
#: Minimum number of windows of a sample that leaves jobs out.
_WINDOWS: Final = 20
#: Maximum number of ids of a window, and of windows of a round trip.
_MOST_IDS, _TOGETHER = 1_000, 10


class Part(NamedTuple):
    """What to read of a state: at most about `most` of the `among` jobs that have entered it last."""

    state: str
    among: int
    most: int

    @property
    def size(self) -> int:
        """The number of jobs to read."""
        return min(self.among, self.most)

    def windows(self) -> Iterator[tuple[int, int]]:
        """The first and the last place of each window; with jobs left out, at equal distances from end to end."""
        if self.among <= self.most:
            starts: Iterable[int] = range(0, self.among, _MOST_IDS)
            size = min(self.among, _MOST_IDS)
        else:
            size = max(1, min(CHUNK_SIZE, self.most // _WINDOWS))
            number = max(2, self.most // size)
            starts = (n * (self.among - size) // (number - 1) for n in range(number))
        yield from ((start, min(start + size, self.among) - 1) for start in starts)


def sampling(handle: QueueHandle, parts: Sequence[Part], columns: Iterable[str]) -> RoundTrips[list[Columns]]:
    """Of each part, the values of the hash fields of some of FIELDS. Jobs that are removed meanwhile are left out.

    The finished jobs of bull-1 have no order: any of them are read.
    """
    is_large = sum(part.size for part in parts) > _FEW
    ids = yield from _ids(handle, parts, is_large)
    names, unique = hash_fields(columns), [*dict.fromkeys(job_id for found in ids for job_id in found)]
    rows: dict[bytes, Sequence[Raw]] = {}
    for start in range(0, len(unique), CHUNK_SIZE):
        rows |= yield from _rows(handle, unique[start : start + CHUNK_SIZE], names, is_large)
    found = [[rows[job_id] for job_id in of_part if job_id in rows] for of_part in ids]
    return [{name: [row[i] for row in of_part] for i, name in enumerate(names)} for of_part in found]


def _step(commands: Sequence[Command], is_large: bool) -> Sequence[Command]:
    return LargeRead(commands) if is_large else commands


def _ids(handle: QueueHandle, parts: Sequence[Part], is_large: bool) -> RoundTrips[list[list[bytes]]]:
    """The ids of each part."""
    ids = [dict[bytes, None]() for _ in parts]
    ranges: list[tuple[int, Command]] = []
    for number, part in enumerate(parts):
        key = handle.dialect.state_key(part.state)
        if key.kind == "set":
            ids[number] = yield from _of_set(handle.keys[key.key], part.size, is_large)
        else:
            # From the end that jobs enter at: those that leave at the other one shift no places.
            command = "LRANGE" if key.kind == "list" else "ZREVRANGE"
            ranges += [(number, (command, handle.keys[key.key], *window)) for window in part.windows()]
    for start in range(0, len(ranges), _TOGETHER):
        some = ranges[start : start + _TOGETHER]
        replies = yield _step([command for _, command in some], is_large)
        for (number, _), reply in zip(some, replies, strict=True):
            ids[number] |= dict.fromkeys(reply)
    return [[*of_part] for of_part in ids]


def _of_set(key: str, size: int, is_large: bool) -> RoundTrips[dict[bytes, None]]:
    """Some ids of a SET."""
    ids: dict[bytes, None] = {}
    cursor, is_over = 0, size == 0
    while not is_over:
        ((cursor, found),) = yield _step([("SSCAN", key, cursor, "COUNT", min(size, _MOST_IDS))], is_large)
        ids |= dict.fromkeys(found)
        is_over = int(cursor) == 0 or len(ids) >= size
    return dict.fromkeys([*ids][:size])


def _rows(
    handle: QueueHandle, ids: list[bytes], names: list[str], is_large: bool
) -> RoundTrips[dict[bytes, Sequence[Raw]]]:
    """The fields of the jobs that exist. `timestamp` is the first of the names."""
    base = handle.keys.base.encode()
    try:
        rows = dict(zip(ids, (yield _step([("HMGET", base + i, *names) for i in ids], is_large)), strict=True))
    except DialectError:
        # The key of a damaged job is not a hash.
        types = yield LargeRead([("TYPE", base + job_id) for job_id in ids])
        ids = [job_id for job_id, kind in zip(ids, types, strict=True) if kind == b"hash"]
        rows = dict(zip(ids, (yield LargeRead([("HMGET", base + i, *names) for i in ids])), strict=True))
    unclear = [job_id for job_id, row in rows.items() if row[0] is None]
    if unclear:
        # What is left of a removed job may have no timestamp.
        exist = yield _step([("EXISTS", base + job_id) for job_id in unclear], is_large)
        for job_id, exists in zip(unclear, exist, strict=True):
            if not exists:
                del rows[job_id]
    return rows


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
    """Statistics: one entry for the whole queue, then one per job name. At most `sample` jobs of each state are read.

    window_ms: period of the finished jobs whose times count, and of the rates. Raises OptionError.
    """
    return run(handle.connection, computing(handle, window_ms, sample))


def computing(handle: QueueHandle, window_ms: int = WINDOW_MS, sample: int = SAMPLE) -> RoundTrips[list[JobStats]]:
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
        for job in _sampled_jobs(columns, total, sample):
            for tally in (of_queue, by_name[job.name]):
                tally.count(state, job)
                if state not in COUNTED_STATES or not has_times:
                    tally.count_added(job, since, now)
    for part, columns in zip(_parts_of(ended, sample), sampled[len(parts) :], strict=True):
        for job in _sampled_jobs(columns, part.among, part.most):
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


def _sampled_jobs(columns: Columns, among: int, sample: int) -> Iterator[_Sampled]:
    """The jobs of a sample of `among` ones."""
    names, *times = ([value_of(FIELDS[name], raw) for raw in raw_column(columns, name)] for name in _COLUMNS)
    weight = among / len(names) if among > sample and names else 1.0
    for name, created, started, finished in zip(names, *times, strict=True):
        yield _Sampled(weight, name or "", created, started, finished)


def _ended(handle: QueueHandle, since: int, now: int) -> RoundTrips[dict[str, int]]:
    """The numbers of the jobs that have ended in this period and are kept, of each state that has some."""
    replies = yield [("ZCOUNT", handle.keys[state], since, now) for state in COUNTED_STATES]
    return {state: jobs for state, jobs in zip(COUNTED_STATES, map(int, replies), strict=True) if jobs}


def _parts_of(ended: Mapping[str, int], sample: int) -> list[Part]:
    """At most `sample` of the jobs that have ended last, of each state its part."""
    total = sum(ended.values())
    return [Part(state, jobs, max(1, min(jobs, sample * jobs // total))) for state, jobs in ended.items()]


def _counted(handle: QueueHandle, since: int, now: int) -> RoundTrips[_Rate | None]:
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
