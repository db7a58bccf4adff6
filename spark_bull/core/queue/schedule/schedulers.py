"""The job schedulers of a queue: creates, changes, lists and removes them."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from spark_bull.core.clock import DELAYED_SCALE
from spark_bull.core.dialects.base import Repeated
from spark_bull.core.dialects.encode.chunks import packed_map
from spark_bull.core.dialects.schedule.checks import checked_scheduler
from spark_bull.core.dialects.schedule.cron import time_before
from spark_bull.core.dialects.schedule.repeating import SHORTEST_MS, NewScheduler, next_of_pattern
from spark_bull.core.errors import JobMissing, PatternError, WrongState, encodable
from spark_bull.core.keys import QueueKeys, literal_glob
from spark_bull.core.model.javascript import whole
from spark_bull.core.model.job_json import parsed_opts
from spark_bull.core.model.jobs import ENDED, NewJob, RawJson
from spark_bull.core.model.queues import Scheduler
from spark_bull.core.queue.handle.admission import intake_closed, refusal_of
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.jobs.read import read_ids, read_job
from spark_bull.core.queue.schedule.advance import may_be_scheduled, version_of
from spark_bull.core.store.round_trips import RoundTrips
from spark_bull.core.store.scripts import Command

log = logging.getLogger("spark_bull")

#: Job schedulers that one script call creates or changes.
SCHEDULE_SIZE: Final = 100
#: Job schedulers that one call reads.
_PAGE: Final = 1_000
#: Options that a job has from its job scheduler.
_OF_SCHEDULE: Final = ("repeat", "repeatJobKey", "jobId", "delay", "timestamp", "prevMillis")
#: Members of repeatable jobs, of which the id of the scheduler may be a part, have this number of ':', or more.
_LEAST_COLONS: Final = 3
#: Job schedulers that a warning names.
_NAMED: Final = 3


class SchedulerEncoder(NamedTuple):
    """Checks job schedulers and encodes them for the scripts. Picklable.

    version: of BullMQ, see `version_of`. members: of the ZSET of schedulers, by the ids of the schedulers, where
    these differ.
    """

    handle: QueueHandle
    defaults: Mapping[str, Any]
    version: str
    members: Mapping[str, Sequence[str]]

    def encode(self, row: Mapping[str, Any], now: int) -> tuple[NewScheduler, Repeated]:
        """row, now: as in `checked_scheduler`. Raises OptionError or DialectError."""
        dialect = self.handle.dialect
        if row.get("data") is not None:
            row = {**row, "data": self.handle.sealed("data", row["data"])}
        scheduler = checked_scheduler(dialect, row, self.defaults, now)
        repeated = dialect.repeated(scheduler, now, self.version)
        own = (scheduler.id, repeated.get("key"))
        others = [member for member in self.members.get(scheduler.id, ()) if member not in own]
        replaces = [(member, dialect.job_ids_of(member)) for member in others]
        repeated["replaces"] = [*repeated.get("replaces", ()), *replaces]
        return scheduler, repeated


def encoder_of(handle: QueueHandle) -> SchedulerEncoder:
    """The encoder of rows without defaults. Raises DialectError for a dialect without job schedulers."""
    handle.dialect.require("schedulers")
    members: dict[str, list[str]] = defaultdict(list)
    for member, scheduler in _read_schedulers(handle, lambda member: member.count(":") >= _LEAST_COLONS):
        members[scheduler.id].append(member)
    return SchedulerEncoder(handle, {}, version_of(handle), dict(members))


def packed_schedulers(schedulers: Sequence[Repeated]) -> bytes:
    """A chunk of job schedulers for the scripts. Raises OptionError for a text that UTF-8 can't encode."""
    rows = [{name: value for name, value in scheduler.items() if value is not None} for scheduler in schedulers]
    return packed_map({"n": len(rows), "schedules": rows})


def upsert(handle: QueueHandle, row: Mapping[str, Any], defaults: Mapping[str, Any]) -> int:
    """Creates or changes a job scheduler; returns when its next job is due, ms since 1970.

    Raises OptionError, DialectError, IntakeClosed or WrongState; then nothing was changed.
    """
    handle.dialect.require("schedulers")
    encoder = SchedulerEncoder(handle, defaults, version_of(handle), {row["id"]: _members_of(handle, row["id"])})
    scheduler, repeated = encoder.encode(row, handle.connection.now_ms())
    if scheduler.is_frequent:
        warn_of_frequent(handle.keys, [scheduler.id])
    reply = handle.run_once("schedule", {"from": 1, "chunk": packed_schedulers([repeated])})
    if refusal_of(reply):
        raise intake_closed(handle.keys.queue)
    _, due, rejected = reply
    for _, taken in rejected:
        job_id = taken.decode()
        raise WrongState(
            f"expected no job {job_id} in queue {handle.keys.queue}, which would be the next one of job scheduler "
            f"{scheduler.id}, but it exists: remove it, or try again when it has been removed",
            queue=handle.keys.queue,
            job_id=job_id,
        )
    return int(due[0])


def warn_of_frequent(keys: QueueKeys, ids: Sequence[str]) -> None:
    """Logs a warning of job schedulers with very short intervals."""
    log.warning(
        "queue %s: %d job schedulers run more often than every %d ms, such as %s: each run takes a call of Redis "
        "before its job; is the interval in ms?",
        keys.queue,
        len(ids),
        SHORTEST_MS,
        ", ".join(ids[:_NAMED]),
    )


def schedulers(handle: QueueHandle) -> Iterator[Scheduler]:
    """The job schedulers of a queue, those that are due first at the beginning. Raises DialectError."""
    handle.dialect.require("schedulers")
    return (scheduler for _, scheduler in _read_schedulers(handle))


def reading_schedulers(handle: QueueHandle) -> RoundTrips[list[Scheduler]]:
    """The steps that read the first thousand of `schedulers`; none in a dialect without job schedulers."""
    if not handle.dialect.has("schedulers"):
        return []
    (found,) = yield [("ZRANGE", handle.keys["repeats"], 0, _PAGE - 1, "WITHSCORES")]
    members = [(member.decode("utf-8", "replace"), next_ms) for member, next_ms in found]
    hashes = (yield commands) if (commands := _hashes_of(handle, members)) else [{}] * len(members)
    return [scheduler for _, scheduler in _as_read(handle, members, hashes)]


def last_due(scheduler: Scheduler) -> int | None:
    """When the job before the next one was due, ms since 1970; None if there was none, or it is unknown, as in Bull."""
    if (scheduler.iteration_count or 0) <= 1:
        return None
    if scheduler.every is not None:
        return scheduler.next - scheduler.every
    try:
        return None if scheduler.pattern is None else time_before(scheduler.pattern, scheduler.next, scheduler.tz)
    except PatternError:
        return None


def without_next_job(handle: QueueHandle) -> Iterator[Scheduler]:
    """Job schedulers that have stopped: the next job is neither waiting nor active, though the scheduler has not ended.

    One that is changed meanwhile may be among them, and in Bull, which does not keep it, one that has reached its
    limit. Raises DialectError.
    """
    handle.dialect.require("schedulers")
    now, found = handle.connection.now_ms(), _read_schedulers(handle)
    while batch := list(islice(found, _PAGE)):
        next_ids = [_next_id(handle, member, scheduler.next) for member, scheduler in batch]
        unfinished = [state for state in handle.dialect.states if state not in ENDED]
        chunks = read_ids(handle, next_ids, unfinished, ())
        there = {job_id.decode("utf-8", "replace") for chunk in chunks for job_id in chunk.ids}
        for (_, scheduler), next_id in zip(batch, next_ids, strict=True):
            if next_id not in there and not _has_ended(scheduler, now):
                yield scheduler


def _has_ended(scheduler: Scheduler, now: int) -> bool:
    """Whether no more jobs are due."""
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


def scheduler(handle: QueueHandle, scheduler_id: str) -> Scheduler | None:
    """One job scheduler, or None. Raises DialectError."""
    handle.dialect.require("schedulers")
    for member in _members_of(handle, scheduler_id):
        next_ms = handle.connection.call("ZSCORE", handle.keys["repeats"], member)
        if next_ms is not None:
            return next(_read_hashes(handle, [(member, next_ms)]))[1]
    return None


def job_of(handle: QueueHandle, scheduler_id: str) -> NewJob:
    """A job like the next one of a scheduler, but without its time. Raises JobMissing or DialectError."""
    handle.dialect.require("schedulers")
    for member in _members_of(handle, scheduler_id):
        due = handle.connection.call("ZSCORE", handle.keys["repeats"], member)
        job = None if due is None else read_job(handle, _next_id(handle, member, whole(float(due))))
        if job is not None:
            given = parsed_opts(job.opts_text) or {}
            opts = {name: value for name, value in given.items() if name not in _OF_SCHEDULE}
            return NewJob(RawJson(job.data_text), job.name, opts=opts)
    raise JobMissing(
        f"job scheduler {scheduler_id} of queue {handle.keys.queue} has no next job that could be copied: create it "
        "again with `upsert_scheduler`",
        queue=handle.keys.queue,
        job_id=scheduler_id,
    )


def remove(handle: QueueHandle, scheduler_id: str) -> bool:
    """Removes a job scheduler and its next job, if that is delayed. Returns whether it existed. Raises DialectError."""
    handle.dialect.require("schedulers")
    members = [(member, handle.dialect.job_ids_of(member)) for member in _members_of(handle, scheduler_id)]
    return bool(handle.run_once("unschedule", {"members": [part for member in members for part in member]}))


def _members_of(handle: QueueHandle, scheduler_id: Any) -> Sequence[str]:
    """Members of the ZSET that a scheduler with this id may have: the id, and those that it is a part of."""
    if not isinstance(scheduler_id, str):
        return [scheduler_id]
    encodable("scheduler_id", scheduler_id)
    found, cursor = set[str](), 0
    while True:
        cursor, pairs = handle.connection.call(
            "ZSCAN", handle.keys["repeats"], cursor, "MATCH", f"*:{literal_glob(scheduler_id)}:*", "COUNT", _PAGE
        )
        members = [(member.decode("utf-8", "replace"), next_ms) for member, next_ms in pairs]
        found.update(member for member, read in _read_hashes(handle, members) if read.id == scheduler_id)
        if not cursor:
            return [scheduler_id, *sorted(found - {scheduler_id})]


def _next_id(handle: QueueHandle, member: str, next_ms: int) -> str:
    """The id of the next job. For an older repeatable job of BullMQ, it is found among the unfinished jobs."""
    by_member = f"{handle.dialect.job_ids_of(member)}{next_ms}"
    if not handle.dialect.is_older(member, ()):
        return by_member
    keys = handle.keys
    has_counter, delayed, *others = handle.connection.pipeline(
        [
            ("HEXISTS", keys.scheduler(member), "ic"),
            ("ZRANGEBYSCORE", keys["delayed"], next_ms * DELAYED_SCALE, "+inf", "LIMIT", 0, _PAGE),
            *(("LRANGE", keys[name], -_PAGE, -1) for name in ("wait", "paused", "active")),
            ("ZRANGE", keys["prioritized"], 0, _PAGE - 1),
        ]
    )
    ids = [each.decode("utf-8", "replace") for part in (delayed, *others) for each in part]
    ids = [] if has_counter else [each for each in ids if each.endswith(f":{next_ms}") and may_be_scheduled(each)]
    owners = handle.connection.pipeline([("HGET", keys.job(each), "rjk") for each in ids])
    return next((each for each, owner in zip(ids, owners, strict=True) if owner == member.encode()), by_member)


def _read_schedulers(
    handle: QueueHandle, wanted: Callable[[str], bool] = lambda _: True
) -> Iterator[tuple[str, Scheduler]]:
    """The job schedulers with `wanted` members of the ZSET. One that moves meanwhile may be missed or read twice."""
    start = 0
    while True:
        stop = start + _PAGE - 1
        found = handle.connection.call("ZRANGE", handle.keys["repeats"], start, stop, "WITHSCORES")
        members = [(member.decode("utf-8", "replace"), next_ms) for member, next_ms in found]
        yield from _read_hashes(handle, [each for each in members if wanted(each[0])])
        if len(found) < _PAGE:
            return
        start += _PAGE


def _read_hashes(handle: QueueHandle, found: Sequence[tuple[str, Any]]) -> Iterator[tuple[str, Scheduler]]:
    commands = _hashes_of(handle, found)
    return _as_read(handle, found, handle.connection.pipeline(commands) if commands else [{}] * len(found))


def _hashes_of(handle: QueueHandle, found: Sequence[tuple[str, Any]]) -> list[Command]:
    """The commands that read the hashes of job schedulers, in a dialect that has them."""
    has_hashes = handle.dialect.has("scheduler-hashes")
    return [("HGETALL", handle.keys.scheduler(member)) for member, _ in found] if has_hashes else []


def _as_read(
    handle: QueueHandle, found: Sequence[tuple[str, Any]], hashes: Sequence[Any]
) -> Iterator[tuple[str, Scheduler]]:
    for (member, next_ms), fields in zip(found, hashes, strict=True):
        texts = {name.decode(): value.decode("utf-8", "replace") for name, value in fields.items()}
        yield member, handle.dialect.scheduler(handle.keys.queue, member, whole(float(next_ms)), texts)
