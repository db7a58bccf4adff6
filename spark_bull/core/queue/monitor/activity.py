"""How busy a queue is: since when its next job waits, when it was last active, how many jobs it takes and ends."""

from __future__ import annotations

from dataclasses import dataclass

from spark_bull.core.clock import DELAYED_SCALE
from spark_bull.core.dialects.fields import integer_of
from spark_bull.core.model.javascript import whole
from spark_bull.core.model.jobs import MINUTE_MS
from spark_bull.core.queue.events.recent_events import recent_events
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.store.connection import Command, ms_of
from spark_bull.core.store.steps import Steps, run


@dataclass(frozen=True)
class Activity:
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


def observing(handle: QueueHandle) -> Steps[Activity]:
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


def waiting_since(handle: QueueHandle) -> Steps[int | None]:
    """When the job that comes next was created, ms since 1970; None if no job waits."""
    keys = handle.keys
    next_ids: list[Command] = [("LRANGE", keys[state], -1, -1) for state in ("wait", "paused")]
    if "prioritized" in handle.dialect.states:
        next_ids.append(("ZRANGE", keys["prioritized"], 0, 0))
    firsts = yield next_ids
    replies = yield [("HGET", keys.base.encode() + job_id, "timestamp") for first in firsts for job_id in first]
    times = [integer_of(reply) for reply in replies]
    return min((time for time in times if time is not None), default=None)


def _of_events(handle: QueueHandle, now: int) -> Steps[tuple[int | None, float, float]]:
    """The time of the last event, and the rates."""
    events = yield from recent_events(handle, now, MINUTE_MS)
    factor = MINUTE_MS / events.over_ms
    return events.last_on, events.added.total() * factor, events.finished * factor


def _of_finish_times(handle: QueueHandle, now: int) -> Steps[tuple[int | None, None, float]]:
    """The time when the last job ended, and how many have ended; removed jobs are not among them."""
    finished = [handle.keys[state] for state in ("completed", "failed")]
    newest = [("ZREVRANGE", key, 0, 0, "WITHSCORES") for key in finished]
    recent = [("ZCOUNT", key, now - MINUTE_MS, now) for key in finished]
    *last, completed, failed = yield [*newest, *recent]
    times = [whole(float(score)) for found in last for _, score in found]
    return max(times, default=None), None, float(completed + failed)
