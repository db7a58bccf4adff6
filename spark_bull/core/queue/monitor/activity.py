"""How busy a queue is, and filters of queues by these numbers.

The numbers are: since when its next job waits, when it was last active, how many jobs it takes and ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from spark_bull.core.clock import DELAYED_SCALE
from spark_bull.core.dialects.fields import integer_of
from spark_bull.core.errors import OptionError, expected
from spark_bull.core.late import late
from spark_bull.core.model.javascript import whole
from spark_bull.core.model.jobs import ENDED, NOT_STARTED
from spark_bull.core.queue.events.event_log import recent_events
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.jobs.read import count_commands, counting
from spark_bull.core.store.connection import ms_of
from spark_bull.core.store.round_trips import LargeRead, RoundTrips, run
from spark_bull.core.store.scripts import Command, script_command

if TYPE_CHECKING:
    from spark_bull.core.model import queues
    from spark_bull.core.model.queues import QueueMetrics
else:
    (queues,) = late("queues", of="spark_bull.core.model")


class Activity(NamedTuple):
    """The activity of a queue. Times are ms since 1970; None: the dialect keeps nothing that tells it.

    ids: value of the counter of ids, which counts all jobs that were added, also those with ids of their own.
    waiting_since: when the job that comes next was created. last_active_on: last event, or end of a job.
    added_per_minute, finished_per_minute: jobs in the last minute. overdue: delayed jobs that are due, but were not
    promoted; overdue_since: when the first of them was due.
    """

    ids: int
    waiting_since: int | None
    last_active_on: int | None
    added_per_minute: float | None
    finished_per_minute: float | None
    overdue: int
    overdue_since: int | None


def activity(handle: QueueHandle) -> Activity:
    """Reads the activity of a queue."""
    return run(handle.connection, observing(handle))


def observing(handle: QueueHandle) -> RoundTrips[Activity]:
    """The steps of `activity`."""
    keys = handle.keys
    time, counter = yield [("TIME",), ("GET", keys["id"])]
    now = ms_of(time)
    due, next_due = yield [
        ("ZCOUNT", keys["delayed"], "-inf", f"({(now + 1) * DELAYED_SCALE}"),
        ("ZRANGE", keys["delayed"], 0, 0, "WITHSCORES"),
    ]
    rates: tuple[int | None, float | None, float | None] = (None, None, None)
    if handle.dialect.has("event-stream"):
        rates = yield from _of_events(handle, now)
    elif handle.dialect.has("finish-times"):
        rates = yield from _of_finish_times(handle, now)
    return Activity(
        integer_of(counter) or 0,
        (yield from waiting_since(handle)),
        *rates,
        overdue=int(due),
        overdue_since=whole(float(next_due[0][1])) // DELAYED_SCALE if due and next_due else None,
    )


def waiting_since(handle: QueueHandle) -> RoundTrips[int | None]:
    """When the job that comes next was created, ms since 1970; None if no job waits."""
    keys = handle.keys
    next_ids: list[Command] = [("LRANGE", keys[state], -1, -1) for state in ("wait", "paused")]
    if "prioritized" in handle.dialect.states:
        next_ids.append(("ZRANGE", keys["prioritized"], 0, 0))
    firsts = yield next_ids
    replies = yield [("HGET", keys.base.encode() + job_id, "timestamp") for first in firsts for job_id in first]
    times = [integer_of(reply) for reply in replies]
    return min((time for time in times if time is not None), default=None)


#: Active jobs of which the locks are looked at.
_LOOKED_AT: Final = 1_000


def counting_unlocked(handle: QueueHandle) -> RoundTrips[int]:
    """The number of active jobs without a lock, among the first thousand: their worker has died, or begins just now."""
    args = {"base": handle.keys.base, "position": 0, "window": _LOOKED_AT}
    (found,) = yield [script_command("read/unlocked", {"active": handle.keys["active"]}, args)]
    return len(found) - 1


def _of_events(handle: QueueHandle, now: int) -> RoundTrips[tuple[int | None, float, float]]:
    """The time of the last event, and the rates."""
    events = yield from recent_events(handle, now, queues.MINUTE_MS)
    factor = queues.MINUTE_MS / events.over_ms
    return events.last_on, events.added.total() * factor, events.finished * factor


def _of_finish_times(handle: QueueHandle, now: int) -> RoundTrips[tuple[int | None, None, float]]:
    """The time when the last job ended, and how many have ended; removed jobs are not among them."""
    finished = [handle.keys[state] for state in ("completed", "failed")]
    newest = [("ZREVRANGE", key, 0, 0, "WITHSCORES") for key in finished]
    recent = [("ZCOUNT", key, now - queues.MINUTE_MS, now) for key in finished]
    *last, completed, failed = yield [*newest, *recent]
    times = [whole(float(score)) for found in last for _, score in found]
    return max(times, default=None), None, float(completed + failed)


#: The states in which jobs are counted.
COUNTED_STATES: Final = ("completed", "failed")
#: Minutes that are read in a round trip that reads of several queues share.
_FEW: Final = 150


def read_metrics(handle: QueueHandle, state: str, start: int = 0, end: int = -1) -> QueueMetrics:
    """Reads the counters of a state. Raises OptionError for a state that is not counted, and DialectError."""
    return run(handle.connection, reading_metrics(handle, state, start, end))


def reading_metrics(handle: QueueHandle, state: str, start: int = 0, end: int = -1) -> RoundTrips[QueueMetrics]:
    """The steps of `read_metrics`."""
    if state not in COUNTED_STATES:
        raise expected("state", " or ".join(COUNTED_STATES), state)
    handle.dialect.require("metrics")
    keys = {"meta": handle.keys[f"metrics_{state}"], "data": handle.keys[f"metrics_{state}_data"]}
    call = script_command("read/metrics", keys, {"first": start, "last": end})
    ((count, prev_ts, prev_count, data, points),) = yield [call] if 0 <= end - start < _FEW else LargeRead([call])
    return queues.QueueMetrics(
        handle.keys.queue,
        state,
        integer_of(count) or 0,
        integer_of(prev_ts) or 0,
        integer_of(prev_count) or 0,
        tuple(integer_of(point) or 0 for point in data),
        int(points),
        min(start, points) if start >= 0 else max(0, start + points),
    )


@dataclass(frozen=True)
class Look:
    """The jobs of a queue by state. at_ms: time of Redis, ms since 1970; ids: counter of all jobs that were added."""

    queue: str
    at_ms: int
    ids: int
    counts: Mapping[str, int]

    @property
    def unfinished(self) -> int:
        return sum(count for state, count in self.counts.items() if state not in ENDED)


def look_at(handle: QueueHandle) -> Look:
    """Reads the counts of a queue in one round trip."""
    time, ids, *counts = handle.connection.pipeline(
        [("TIME",), ("GET", handle.keys["id"]), *count_commands(handle).values()]
    )
    by_state = dict(zip(handle.dialect.states, map(int, counts), strict=True))
    return Look(handle.keys.queue, int(time[0]) * 1000 + int(time[1]) // 1000, integer_of(ids) or 0, by_state)


class Throughput(NamedTuple):
    """The change of a queue. Rates are jobs per second, None at the first look. changes: of the counts by state.

    added_per_s counts jobs that were added. left_per_s counts those that have completed, failed or were removed; a
    finished job that is retried counts against it. A job that was not added because its id existed counts in both: the
    counter of ids counts it, too.
    """

    added_per_s: float | None
    left_per_s: float | None
    changes: Mapping[str, int]


def throughput_of(before: Look | None, now: Look) -> Throughput:
    """What has changed since an earlier look at the same queue."""
    if before is None:
        return Throughput(None, None, {})
    seconds = max(1, now.at_ms - before.at_ms) / 1000
    # The counter is deleted with the queue.
    added = max(0, now.ids - before.ids)
    left = max(0, added - (now.unfinished - before.unfinished))
    changes = {state: count - before.counts.get(state, 0) for state, count in now.counts.items()}
    return Throughput(added / seconds, left / seconds, changes)


@dataclass(frozen=True)
class QueueFilter:
    """Which queues are shown; None: no bound.

    Parameters:
      min_length, max_length: number of jobs that are not active and have not ended.
      min_added_per_s, min_finished_per_s: jobs per second, in the last minute. A queue whose rate is not known is left
        out.
      min_idle_ms: for how long there was no event, and no job has ended. A queue of which it is not known is left out.
    """

    min_length: int | None = None
    max_length: int | None = None
    min_added_per_s: float | None = None
    min_finished_per_s: float | None = None
    min_idle_ms: int | None = None

    def __post_init__(self) -> None:
        if self.min_length is not None and self.max_length is not None and self.min_length > self.max_length:
            raise OptionError(
                f"expected `minLength` to be at most `maxLength`, got: {self.min_length} and {self.max_length}"
            )

    @property
    def has_length(self) -> bool:
        return self.min_length is not None or self.max_length is not None

    @property
    def has_activity(self) -> bool:
        return (self.min_added_per_s, self.min_finished_per_s, self.min_idle_ms) != (None, None, None)


def selecting(handle: QueueHandle, wanted: QueueFilter) -> RoundTrips[bool]:
    """Whether a queue fits. Its length is read first, and its activity only if that fits; without bounds, nothing."""
    if wanted.has_length:
        found = yield from counting(handle)
        length = sum(jobs for state, jobs in found.items() if state in NOT_STARTED)
        if not _is_within(length, wanted.min_length, wanted.max_length):
            return False
    if not wanted.has_activity:
        return True
    busy = yield from observing(handle)
    (time,) = yield [("TIME",)]
    idle_ms = None if busy.last_active_on is None else ms_of(time) - busy.last_active_on
    return (
        _is_within(_per_s(busy.added_per_minute), wanted.min_added_per_s)
        and _is_within(_per_s(busy.finished_per_minute), wanted.min_finished_per_s)
        and _is_within(idle_ms, wanted.min_idle_ms)
    )


def _per_s(per_minute: float | None) -> float | None:
    return None if per_minute is None else per_minute / 60


def _is_within(value: float | None, least: float | None, most: float | None = None) -> bool:
    if least is None and most is None:
        return True
    return value is not None and (least is None or value >= least) and (most is None or value <= most)
