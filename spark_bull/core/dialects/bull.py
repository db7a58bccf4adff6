"""Bull 3 and 4; Bull 1 and 2, the published Bull Protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from spark_bull.core.dialects.base import (
    DEFAULT_NAME,
    MARKS,
    Dialect,
    NextJob,
    Repeated,
    StateKey,
    normal_backoff,
    with_bare_marks,
    without_nulls,
)
from spark_bull.core.dialects.events import EventChannels, bull1_channels, bull1_event, bull_channels, bull_event
from spark_bull.core.dialects.terms import QueuePriority
from spark_bull.core.errors import OptionError, PatternError
from spark_bull.core.keys import SCHEDULED, QueueKeys, scheduled_id
from spark_bull.core.late import late
from spark_bull.core.store.scripts import Command

if TYPE_CHECKING:
    from spark_bull.core.dialects.schedule import repeating
    from spark_bull.core.dialects.schedule.repeating import NewScheduler
    from spark_bull.core.model.outcomes import ClaimedJob
    from spark_bull.core.model.queues import QueueEvent, Scheduler
else:
    (repeating,) = late("repeating", of="spark_bull.core.dialects.schedule")

FALSE_IN_JAVASCRIPT = frozenset({"null", "false", "0", '""', "-0", "0.0"})


class Bull(Dialect):
    """Prioritized jobs are in `wait`, events are pub/sub messages."""

    name = "bull"
    folder = "bull"
    column = "bull"
    replaced_data = FALSE_IN_JAVASCRIPT
    deduplication_option = "debounce"
    deduplication_members = frozenset({"ttl"})
    states: ClassVar = {
        "wait": StateKey("wait", "list"),
        "active": StateKey("active", "list"),
        "delayed": StateKey("delayed", "zset"),
        "paused": StateKey("paused", "list"),
        "completed": StateKey("completed", "zset"),
        "failed": StateKey("failed", "zset"),
    }

    def event_channels(self, keys: QueueKeys) -> EventChannels:
        return bull_channels(keys)

    def event_of(self, keys: QueueKeys, channel: str, message: bytes) -> QueueEvent | None:
        return bull_event(keys, channel, message)

    def pause_marks(self, keys: QueueKeys) -> list[Command]:
        # Bull 4 reads both, so that its queues can be migrated to BullMQ, which has only the field.
        return [*super().pause_marks(keys), ("HGET", keys["meta"], "paused")]

    def _opts(self, given: dict[str, Any]) -> dict[str, Any]:
        from_bull: dict[str, Any] = {"attempts": 1, "delay": 0, "timestamp": MARKS["timestamp"]}
        return without_nulls(from_bull | given | normal_backoff(given))

    def next_job(self, job: ClaimedJob, now: int, version: str) -> NextJob | None:
        opts = repeating.read_opts(job.opts)
        repeat = opts.get("repeat")
        if not isinstance(repeat, dict) or repeating.is_over(repeat, now):
            return None
        due = repeating.number_of(opts, "prevMillis") or 0
        next_due = _next_of(repeat, max(now, due))
        if next_due is None:
            return None
        name, own_id = job.name or DEFAULT_NAME, repeat.get("jobId") or ""
        key = _key_of(name, own_id, repeat)
        made = {
            "repeat": {**repeat, "count": repeating.iteration_of(repeat), "key": key},
            **MARKS,
            "prevMillis": next_due,
        }
        return {
            "id": scheduled_id(_namespace(name, own_id, key), next_due),
            "key": key,
            "due": due,
            "next": next_due,
            "name": name,
            "data": "{}" if not job.data or job.data in FALSE_IN_JAVASCRIPT else job.data,
            "opts": with_bare_marks(self._opts(opts | made)),
            "priority": repeating.number_of(opts, "priority") or 0,
            "lifo": bool(opts.get("lifo")),
        }

    def repeated(self, scheduler: NewScheduler, now: int, version: str) -> Repeated:
        for field, value in (("id", scheduler.id), ("name", scheduler.name)):
            if ":" in (value or ""):
                raise OptionError(f"expected `{field}` without ':', which Bull uses in its keys, got: {value!r}")
        if scheduler.offset is not None:
            self.require("interval-offsets", "`offset`")
        if scheduler.start_date is not None and scheduler.every is not None:
            self.require("interval-starts", "`startDate` with `every`")
        repeat = scheduler.repeat("cron") | {"jobId": scheduler.id}
        name = scheduler.name or DEFAULT_NAME
        key = _key_of(name, scheduler.id, repeat)
        try:
            due = repeating.next_or_error(scheduler, _next_of(repeat, now))
        except PatternError as error:
            raise OptionError(f"`pattern`: {error}") from None
        made = {"repeat": {**repeat, "key": key}, **MARKS, "prevMillis": due}
        return {
            "id": scheduler.id,
            "key": key,
            "job_id": scheduled_id(_namespace(name, scheduler.id, key), due),
            "next": due,
            "name": name,
            "data": "{}" if scheduler.data in FALSE_IN_JAVASCRIPT else scheduler.data,
            "opts": with_bare_marks(self._opts(scheduler.opts | made)),
            "priority": scheduler.opts.get("priority") or 0,
            "lifo": bool(scheduler.opts.get("lifo")),
            "replaces": [(key, self.job_ids_of(key))],
        }

    def scheduler(self, queue: str, member: str, next_ms: int, fields: Mapping[str, str]) -> Scheduler:
        return repeating.repeatable(queue, member, next_ms)

    def job_ids_of(self, member: str) -> str:
        name, own_id, *_ = [*member.split(":", 2), ""]
        return f"{SCHEDULED}{_namespace(name, own_id, member)}:"


def _next_of(repeat: Mapping[str, Any], now: int) -> int | None:
    every, pattern = repeating.number_of(repeat, "every"), repeat.get("cron")
    if every and pattern:
        raise PatternError(f"expected one of `cron` and `every`, got both: {pattern!r}, {every!r}")
    if pattern:
        return repeating.next_of_pattern(repeat, pattern, now, classic=True)
    if not every or every < 0:
        raise PatternError(f"expected `cron` or `every` (ms), got: {every!r}")
    return now // every * every + every


def _key_of(name: str, own_id: str, repeat: Mapping[str, Any]) -> str:
    """The member of a job scheduler in the ZSET of job schedulers."""
    pattern = repeat.get("cron")
    timing = f"{repeat.get('tz') or ''}:{pattern}" if pattern else str(repeat.get("every"))
    return f"{name}:{own_id}:{repeating.time_of(repeat, 'endDate') or ''}:{timing}"


def _namespace(name: str, own_id: str, key: str) -> str:
    """The part of the ids of a job scheduler's jobs that names the job scheduler. key: its member in the ZSET."""
    return repeating.md5_text(f"{name}{own_id}:{repeating.md5_text(key)}")


class Bull1(Dialect):
    """Finished states are SETs without order and times; jobs have no names and no priorities."""

    name = "bull-1"
    folder = "bull/bull1"
    column = "bull-1"
    replaced_data = unwritten_results = FALSE_IN_JAVASCRIPT
    states: ClassVar = {
        **Bull.states,
        "completed": StateKey("completed", "set"),
        "failed": StateKey("failed", "set"),
    }

    def event_channels(self, keys: QueueKeys) -> EventChannels:
        return bull1_channels(keys)

    def event_of(self, keys: QueueKeys, channel: str, message: bytes) -> QueueEvent | None:
        return bull1_event(keys, channel, message)

    def check_priority(self, priority: object) -> int:
        checked = super().check_priority(priority)
        if isinstance(priority, QueuePriority):
            return 0
        if checked:
            self.require("priorities", f"`priority` {priority!r}")
        return checked

    def stack_limit(self, given: int | None) -> int | None:
        return None

    def _opts(self, given: dict[str, Any]) -> dict[str, Any]:
        return without_nulls(given)
