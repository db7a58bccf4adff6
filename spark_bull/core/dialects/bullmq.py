"""BullMQ 5 and 6. docs/develop/adding.md says what a BullMQ 7 would change."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from spark_bull.core.dialects.base import (
    MARKS,
    Dialect,
    NextJob,
    OlderNext,
    Repeated,
    StateKey,
    json_text,
    normal_backoff,
    with_bare_marks,
    without_nulls,
)
from spark_bull.core.dialects.features import FeatureColumn
from spark_bull.core.dialects.fields import CLAIMED_FIELDS
from spark_bull.core.dialects.terms import DEDUPLICATION_MEMBERS, FAILURE_FLAGS, bullmq_exponential_ms, priority_number
from spark_bull.core.errors import OptionError, PatternError
from spark_bull.core.keys import SCHEDULED, QueueKeys, scheduler_of
from spark_bull.core.late import late
from spark_bull.core.model import javascript
from spark_bull.core.store.scripts import Command

if TYPE_CHECKING:
    from spark_bull.core.dialects.schedule import repeating
    from spark_bull.core.dialects.schedule.repeating import NewScheduler
    from spark_bull.core.model import queues
    from spark_bull.core.model.outcomes import ClaimedJob
    from spark_bull.core.model.queues import Scheduler
else:
    (repeating,) = late("repeating", of="spark_bull.core.dialects.schedule")
    (queues,) = late("queues", of="spark_bull.core.model")

#: Option names that BullMQ stores under a short one.
SHORT_NAMES: Final = {"deduplication": "de", "keepLogs": "kl", **FAILURE_FLAGS}
HIGHEST_PRIORITY: Final = 2**21 - 1
_MAJOR: Final = re.compile(r"(?:bullmq:)?([0-9]+)")
#: Members of older repeatable jobs, name:id:endDate:tz:pattern, have this number of ':', or more.
_OLDER_COLONS: Final = 4
_INTEGER: Final = re.compile(r"-?(0|[1-9][0-9]*)")


class BullMQ(Dialect):
    """Prioritized jobs have their own ZSET, events are a stream, workers block on a marker."""

    name = "bullmq"
    folder = "bullmq"
    column = "bullmq-6"
    deduplication_option = "deduplication"
    deduplication_members = DEDUPLICATION_MEMBERS
    retryable_states = ("failed", "completed")
    claim_fields: ClassVar = {
        field.claimed: field.names[-1] for name, field in CLAIMED_FIELDS.items() if name != "attempts"
    }
    states: ClassVar = {
        "wait": StateKey("wait", "list"),
        "active": StateKey("active", "list"),
        "delayed": StateKey("delayed", "zset"),
        "prioritized": StateKey("prioritized", "zset"),
        "paused": StateKey("paused", "list"),
        "waiting-children": StateKey("waiting_children", "zset"),
        "completed": StateKey("completed", "zset"),
        "failed": StateKey("failed", "zset"),
    }

    def column_of(self, version: str) -> FeatureColumn:
        major = _MAJOR.match(version)
        return "bullmq-5" if major is None or int(major[1]) < 6 else self.column

    def counted_states(self, jobs: Mapping[str, int], version: str | None) -> dict[str, str]:
        found = super().counted_states(jobs, version)
        if not self.has("paused-list", version or "") and not jobs["paused"]:
            # BullMQ 6 has no such list.
            del found["paused"]
        return found

    def allows(self, queue: str) -> bool:
        return ":" not in queue

    def check_job_id(self, job_id: str) -> None:
        super().check_job_id(job_id)
        if _INTEGER.fullmatch(job_id):
            raise OptionError(
                f"expected `jobId` not to be an integer (BullMQ's own ids are), got: {job_id!r}; put a letter in front"
            )
        if job_id.startswith("0:"):
            raise OptionError(f"expected `jobId` not to start with '0:', got: {job_id!r}")
        if ":" in job_id and job_id.count(":") != 2:
            raise OptionError(f"expected `jobId` without ':' (or with two of them), got: {job_id!r}; use '-'")

    def are_plain_ids(self, job_ids: Collection[str]) -> bool:
        return super().are_plain_ids(job_ids) and not any(map(_INTEGER.fullmatch, job_ids))

    def check_priority(self, priority: object) -> int:
        return priority_number(priority, HIGHEST_PRIORITY)

    def exponential_ms(self, delay: float, attempts_made: int, jitter: float) -> int:
        return bullmq_exponential_ms(delay, attempts_made, jitter)

    def attempts_of(self, given: object) -> int:
        # Compared as it is: 2.5 attempts are three.
        return javascript.ceiling(javascript.number_of(given))

    def stack_limit(self, given: int | None) -> int | None:
        return given

    def pause_marks(self, keys: QueueKeys) -> list[Command]:
        return [("HGET", keys["meta"], "paused")]

    def worker_client_name(self, keys: QueueKeys, worker: str) -> str:
        return f"{keys.client_name}:w:{worker}"

    def wait_command(self, keys: QueueKeys, timeout_s: float) -> Command:
        """Pops the marker; no job is moved until it is claimed."""
        return ("BZPOPMIN", keys["marker"], timeout_s)

    def moved_job(self, answer: object) -> bytes:
        return b""

    def _opts(self, given: dict[str, Any]) -> dict[str, Any]:
        chosen = [name for name in FAILURE_FLAGS if given.get(name)]
        if len(chosen) > 1:
            raise OptionError(
                f"expected at most one of {', '.join(chosen)} in `opts`, got {len(chosen)}: they exclude each other"
            )
        return _stored({"attempts": 0} | given | normal_backoff(given))

    def repeated(self, scheduler: NewScheduler, now: int, version: str) -> Repeated:
        repeat, due = scheduler.repeat(), None
        if scheduler.pattern is not None:
            try:
                found = repeating.next_of_pattern(
                    repeat, scheduler.pattern, now, classic=self.has("classic-cron", version)
                )
            except PatternError as error:
                raise OptionError(f"`pattern`: {error}") from None
            due = repeating.next_or_error(scheduler, found)
        name, template = scheduler.name or scheduler.id, _stored(scheduler.opts)
        made = {"repeat": repeat, "repeatJobKey": scheduler.id, **MARKS, "prevMillis": due}
        fields: dict[str, str | int | None] = {
            "name": name,
            "tz": scheduler.tz,
            "limit": scheduler.limit,
            "pattern": scheduler.pattern,
            "startDate": scheduler.start_date,
            "endDate": scheduler.end_date,
            "every": scheduler.every,
            "opts": json_text("opts", template) if template else None,
            "data": None if scheduler.data == "{}" else scheduler.data,
        }
        return {
            "id": scheduler.id,
            "name": name,
            "data": scheduler.data,
            "opts": with_bare_marks(without_nulls(template | made)),
            "priority": scheduler.opts.get("priority") or 0,
            "lifo": bool(scheduler.opts.get("lifo")),
            "next": due,
            "every": scheduler.every,
            "offset": scheduler.offset or None,
            "start": scheduler.start_date,
            "fields": [item for field in without_nulls(fields).items() for item in field],
        }

    def scheduler(self, queue: str, member: str, next_ms: int, fields: Mapping[str, str]) -> Scheduler:
        if self.is_older(member, fields):
            return repeating.repeatable(queue, member, next_ms)
        return queues.Scheduler(
            queue=queue,
            id=member,
            name=fields.get("name"),
            next=next_ms,
            every=_integer(fields, "every"),
            pattern=fields.get("pattern"),
            tz=fields.get("tz"),
            limit=_integer(fields, "limit"),
            offset=_integer(fields, "offset"),
            start_date=_integer(fields, "startDate"),
            end_date=_integer(fields, "endDate"),
            iteration_count=_integer(fields, "ic"),
            data_text=fields.get("data"),
            opts_text=fields.get("opts"),
        )

    def is_older(self, member: str, fields: Collection[str]) -> bool:
        return member.count(":") >= _OLDER_COLONS and "ic" not in fields

    def job_ids_of(self, member: str) -> str:
        return f"{SCHEDULED}{member}:"

    def next_job(self, job: ClaimedJob, now: int, version: str) -> NextJob | None:
        opts = repeating.read_opts(job.opts)
        given = opts.get("repeat")
        repeat: dict[str, Any] = given if isinstance(given, dict) else {}
        if repeating.is_over(repeat, now):
            return None
        every, pattern, due = repeating.number_of(repeat, "every"), repeat.get("pattern"), None
        if pattern:
            after = max(now, repeating.number_of(opts, "prevMillis") or 0)
            due = repeating.next_of_pattern(repeat, pattern, after, classic=self.has("classic-cron", version))
            if due is None and not every:
                return None
        made = {"repeat": _next_repeat(repeat), "repeatJobKey": scheduler_of(job.id), **MARKS, "prevMillis": due}
        deduplication = opts.get("de")
        return {
            "id": job.id,
            "name": job.name or "",
            "every": every,
            "offset": repeating.number_of(repeat, "offset"),
            "next": due,
            "opts": with_bare_marks(without_nulls({"attempts": 0} | opts | normal_backoff(opts) | made)),
            "priority": repeating.number_of(opts, "priority") or 0,
            "lifo": bool(opts.get("lifo")),
            "deduplication_id": deduplication.get("id") if isinstance(deduplication, dict) else None,
            "older": _older_next(job, opts, repeat, now, due),
        }


@dataclass(frozen=True)
class OldBullMQ(BullMQ):
    """BullMQ 3 or 4. BullMQ 3 keeps jobs with a priority elsewhere, and both count attempts in another field."""

    version: str
    older: str


def _older_next(
    job: ClaimedJob, opts: dict[str, Any], repeat: Mapping[str, Any], now: int, due: int | None
) -> OlderNext | None:
    """How the job continues if its member is name:id:endDate:tz:pattern. due: the next time of its pattern, ms.

    Node 5 computes the ids of the next jobs otherwise than the version that has made the first one.
    """
    every, previous = repeating.number_of(repeat, "every"), repeating.number_of(opts, "prevMillis")
    if due is None and every and every > 0 and previous is not None:
        due = max(now, previous) // every * every + every
    if previous is None or due is None:
        return None
    name, own_id, rhythm = job.name or "", repeat.get("jobId") or "", repeat.get("pattern") or every
    member = f"{name}:{own_id}:{repeating.time_of(repeat, 'endDate') or ''}:{repeat.get('tz') or ''}:{rhythm}"
    members = [str(repeat.get("key") or repeating.md5_text(member)), member]
    stored = {key: value for key, value in repeat.items() if key not in ("immediately", "cron")}
    made = {"repeat": {**stored, "count": repeating.iteration_of(repeat)}, **MARKS, "prevMillis": due}
    return {
        "members": members,
        "ids": [f"{SCHEDULED}{_older_id(name, each, job.data)}:" for each in members],
        "due": previous,
        "next": due,
        "shift": repeating.number_of(repeat, "offset") or 0,
        "opts": with_bare_marks(without_nulls({"attempts": 0} | opts | normal_backoff(opts) | made)),
    }


def _older_id(name: str, member: str, data: str) -> str:
    """What names the repeatable job in the ids of its jobs."""
    if member.count(":") < 2:
        return member
    try:
        payload = json.loads(data) if '"id"' in data else None
    except (ValueError, RecursionError):
        payload = None
    own = payload.get("id") if isinstance(payload, dict) else None
    text = own if isinstance(own, str) else json.dumps(own) if own else ""
    return repeating.md5_text(f"{name}{text}{repeating.md5_text(member)}")


def _stored(opts: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a job as BullMQ stores them."""
    stored = dict(opts)
    telemetry = stored.pop("telemetry", None)
    if isinstance(telemetry, dict):
        stored["tm"], stored["omc"] = telemetry.get("metadata"), telemetry.get("omitContext")
    return without_nulls({SHORT_NAMES.get(name, name): v for name, v in stored.items()})


def _integer(fields: Mapping[str, str], name: str) -> int | None:
    """A number in a scheduler's hash; None if it is missing or damaged."""
    return javascript.whole_in(fields.get(name, ""))


def _next_repeat(repeat: Mapping[str, Any]) -> dict[str, Any]:
    dates = {name: repeating.time_of(repeat, name) for name in ("startDate", "endDate")}
    offset = repeat.get("offset") if repeat.get("every") else None
    return without_nulls({**repeat, **dates, "offset": offset or None, "count": repeating.iteration_of(repeat)})
