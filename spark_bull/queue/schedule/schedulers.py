"""The schedules of a queue: creates, changes, lists and removes them."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from spark_bull.dialects.base import Repeated
from spark_bull.dialects.encode.chunks import packed_map
from spark_bull.dialects.schedule.checks import checked_schedule
from spark_bull.dialects.schedule.repeating import next_of_pattern
from spark_bull.dialects.schedule.schedules import SHORTEST_MS, Schedule
from spark_bull.errors import PatternError, WrongState, encodable
from spark_bull.keys import QueueKeys, literal_glob
from spark_bull.model.jobs import Scheduler
from spark_bull.queue.core import verbs
from spark_bull.queue.core.handle import QueueHandle
from spark_bull.queue.core.room import intake_closed
from spark_bull.queue.jobs.read import read_ids
from spark_bull.queue.schedule.schedules import version_of

log = logging.getLogger("spark_bull")

#: Schedules that one script call creates or changes.
SCHEDULE_SIZE: Final = 100
#: Schedules that one call reads.
_PAGE: Final = 1_000
_FINISHED: Final = frozenset({"completed", "failed"})
#: Schedules that a warning names.
_NAMED: Final = 3


@dataclass(frozen=True)
class ScheduleEncoder:
    """Checks schedules and encodes them for the scripts. Picklable.

    version: that of BullMQ, see `version_of`. members: of the ZSET of schedules, by the ids of the schedules, in a
    dialect in which these differ.
    """

    handle: QueueHandle
    defaults: Mapping[str, Any]
    version: str
    members: Mapping[str, Sequence[str]]

    def encode(self, row: Mapping[str, Any], now: int) -> tuple[Schedule, Repeated]:
        """row, now: as in `checked_schedule`. Raises OptionError or DialectError."""
        dialect = self.handle.dialect
        schedule = checked_schedule(dialect, row, self.defaults, now)
        repeated = dialect.repeated(schedule, now, self.version)
        others = [member for member in self.members.get(schedule.id, ()) if member != repeated["key"]]
        if others:
            repeated["replaces"] += [(member, dialect.job_ids_of(member)) for member in others]
        return schedule, repeated


def encoder_of(handle: QueueHandle, defaults: Mapping[str, Any]) -> ScheduleEncoder:
    """defaults: those of the queue's jobs. Raises DialectError for a dialect without schedules."""
    handle.dialect.require("schedules")
    members: dict[str, list[str]] = defaultdict(list)
    if not handle.dialect.has("schedule-hashes"):
        for member, scheduler in _read(handle):
            members[scheduler.id].append(member)
    return ScheduleEncoder(handle, defaults, version_of(handle), dict(members))


def packed_schedules(schedules: Sequence[Repeated]) -> bytes:
    """A chunk of schedules for the scripts. Raises OptionError for a text that UTF-8 can't encode."""
    rows = [{name: value for name, value in schedule.items() if value is not None} for schedule in schedules]
    return packed_map({"n": len(rows), "schedules": rows})


def upsert(handle: QueueHandle, row: Mapping[str, Any], defaults: Mapping[str, Any]) -> int:
    """Creates or changes a schedule; returns when its next job is due, ms since 1970.

    Raises OptionError, DialectError, IntakeClosed or WrongState; then nothing was changed.
    """
    handle.dialect.require("schedules")
    members = {} if handle.dialect.has("schedule-hashes") else {row["id"]: _members_of(handle, row["id"])}
    encoder = ScheduleEncoder(handle, defaults, version_of(handle), members)
    schedule, repeated = encoder.encode(row, handle.connection.now_ms())
    if schedule.is_frequent:
        warn_of_frequent(handle.keys, [schedule.id])
    reply = verbs.schedule(handle, packed_schedules([repeated]), first=1)
    if isinstance(reply, verbs.Refusal):
        raise intake_closed(handle.keys.queue)
    for _, job_id in reply.rejected:
        raise WrongState(
            f"expected no job {job_id} in queue {handle.keys.queue}, which would be the next one of schedule "
            f"{schedule.id}, but it exists: remove it, or try again when it has been removed",
            queue=handle.keys.queue,
            job_id=job_id,
        )
    return reply.due[0]


def warn_of_frequent(keys: QueueKeys, ids: Sequence[str]) -> None:
    """Logs a warning of schedules with very short intervals."""
    log.warning(
        "queue %s: %d schedules run more often than every %d ms, such as %s: each run takes a script call in Redis "
        "before its job; is the interval in ms?",
        keys.queue,
        len(ids),
        SHORTEST_MS,
        ", ".join(ids[:_NAMED]),
    )


def schedulers(handle: QueueHandle) -> Iterator[Scheduler]:
    """The schedules of a queue, those that are due first at the beginning. Raises DialectError."""
    handle.dialect.require("schedules")
    return (scheduler for _, scheduler in _read(handle))


def without_next_job(handle: QueueHandle) -> Iterator[Scheduler]:
    """Schedules that have stopped: the next job is neither waiting nor active, though the schedule has not ended.

    One that is changed meanwhile may be among them, and in Bull, which does not keep it, one that has reached its
    limit. Raises DialectError.
    """
    handle.dialect.require("schedules")
    now, found = handle.connection.now_ms(), _read(handle)
    while batch := list(islice(found, _PAGE)):
        next_ids = [f"{handle.dialect.job_ids_of(member)}{scheduler.next}" for member, scheduler in batch]
        unfinished = [state for state in handle.dialect.states if state not in _FINISHED]
        chunks = read_ids(handle, next_ids, unfinished, ())
        there = {job_id.decode("utf-8", "replace") for chunk in chunks for job_id in chunk.ids}
        for (_, scheduler), next_id in zip(batch, next_ids, strict=True):
            if next_id not in there and not _has_ended(scheduler, now):
                yield scheduler


def _has_ended(scheduler: Scheduler, now: int) -> bool:
    """Whether no further job is due."""
    if scheduler.limit is not None and (scheduler.iteration_count or 0) >= scheduler.limit:
        return True
    if scheduler.end_date is None:
        return False
    if scheduler.every is not None:
        return max(now, scheduler.next + scheduler.every) > scheduler.end_date
    try:
        repeat = {"endDate": scheduler.end_date, "tz": scheduler.tz}
        return next_of_pattern(repeat, scheduler.pattern, max(now, scheduler.next), classic=False) is None
    except PatternError:
        return False


def scheduler(handle: QueueHandle, schedule_id: str) -> Scheduler | None:
    """One schedule, or None. Raises DialectError."""
    handle.dialect.require("schedules")
    for member in _members_of(handle, schedule_id):
        next_ms = handle.connection.call("ZSCORE", handle.keys["repeats"], member)
        if next_ms is not None:
            return next(_as_read(handle, [(member, next_ms)]))[1]
    return None


def remove(handle: QueueHandle, schedule_id: str) -> bool:
    """Removes a schedule and its next job, if that is delayed. Returns whether it existed. Raises DialectError."""
    handle.dialect.require("schedules")
    members = _members_of(handle, schedule_id)
    return verbs.unschedule(handle, [(member, handle.dialect.job_ids_of(member)) for member in members]) > 0


def _members_of(handle: QueueHandle, schedule_id: Any) -> Sequence[str]:
    """Members of the ZSET that a schedule with this id may have; in Bull, the id is a part of them, or the member."""
    if isinstance(schedule_id, str):
        encodable("scheduler_id", schedule_id)
    if handle.dialect.has("schedule-hashes") or not isinstance(schedule_id, str):
        return [schedule_id]
    found, cursor = {schedule_id}, 0
    while True:
        cursor, pairs = handle.connection.call(
            "ZSCAN", handle.keys["repeats"], cursor, "MATCH", f"*:{literal_glob(schedule_id)}:*", "COUNT", _PAGE
        )
        members = [member.decode("utf-8", "replace") for member, _ in pairs]
        found.update(
            member for member in members if handle.dialect.scheduler(handle.keys.queue, member, 0, {}).id == schedule_id
        )
        if not cursor:
            return sorted(found)


def _read(handle: QueueHandle) -> Iterator[tuple[str, Scheduler]]:
    """All schedules with their members of the ZSET. One that moves meanwhile may be missed or read twice."""
    start = 0
    while True:
        stop = start + _PAGE - 1
        found = handle.connection.call("ZRANGE", handle.keys["repeats"], start, stop, "WITHSCORES")
        yield from _as_read(handle, [(member.decode("utf-8", "replace"), next_ms) for member, next_ms in found])
        if len(found) < _PAGE:
            return
        start += _PAGE


def _as_read(handle: QueueHandle, found: Sequence[tuple[str, Any]]) -> Iterator[tuple[str, Scheduler]]:
    hashes: Sequence[Any] = [{}] * len(found)
    if handle.dialect.has("schedule-hashes") and found:
        hashes = handle.connection.pipeline([("HGETALL", handle.keys.scheduler(member)) for member, _ in found])
    for (member, next_ms), fields in zip(found, hashes, strict=True):
        texts = {name.decode(): value.decode("utf-8", "replace") for name, value in fields.items()}
        yield member, handle.dialect.scheduler(handle.keys.queue, member, int(float(next_ms)), texts)
