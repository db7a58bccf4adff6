"""The verbs of workers: one function for each script, with its name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Literal, NamedTuple, TypedDict

import msgpack

from spark_bull.core.model.guards import Guard
from spark_bull.core.model.limits import NO_WORKER, GroupLimits, WorkSettings
from spark_bull.core.model.outcomes import Outcomes
from spark_bull.core.queue.handle.handle import CHUNK_SIZE, MOVE_SIZE, RECEIPT_TTL_MS, QueueHandle, touched_keys

#: TTL of a ledger of claims after the last claim or batch of its query.
CLAIMS_TTL_MS: Final = 7 * 86_400_000


class WorkReply(TypedDict):
    """The reply of `work`, unpacked. Lua returns false for nothing; pairs are (job id, reason or type of its key).

    counted: numbers of jobs by what became of them, if the settings have a key for them.
    """

    ids: list[str]
    columns: dict[str, object] | Literal[False]
    damaged: list[tuple[str, str]]
    lost: list[tuple[str, str]] | Literal[False]
    limited_ms: int
    next_due: float | Literal[False]
    more: bool
    stop: bool
    paused: bool
    now: int
    counted: dict[str, int] | Literal[False]


def work(
    handle: QueueHandle,
    settings: WorkSettings,
    limit: int,
    *,
    call: str,
    token: str,
    most_bytes: int,
    outcomes: Outcomes | None = None,
    held: bytes | str = b"",
    reader: str = "",
    with_jobs: bool = True,
) -> bytes:
    """Settles a chunk of claimed jobs and claims the next one; see `claim.work`. Returns a packed WorkReply.

    Outcomes with follow-ups have a script of their own, which does more.
    """
    limiter, settled = settings.limiter, outcomes.packable() if outcomes else {}
    adds = "follow_ups" in settled
    args = {
        "call": call,
        "ttl_ms": RECEIPT_TTL_MS,
        "lock_token": token,
        "lock_ms": settings.lock_ms,
        "worker": settings.worker,
        "limit": limit,
        "most_bytes": most_bytes,
        "held": held,
        "limiter_max": limiter.max if limiter else "",
        "limiter_ms": limiter.duration if limiter else "",
        "limiter_groups": int(limiter is not None and limiter.group_key is not None),
        "limiter_delays": int(limiter is not None and not limiter.bounce_back and settings.group is None),
        "at_once": "" if settings.at_once is None else settings.at_once,
        "group": _packed(settings.group) if settings.group else "",
        "max_metrics": settings.max_metrics,
        "want_jobs": int(with_jobs),
        "outcomes": msgpack.packb(settled, use_bin_type=False) if settled else "",
        "ledger_ttl_ms": CLAIMS_TTL_MS,
    }
    reply: bytes = handle.run(
        "work_and_add" if adds else "work",
        args,
        receipt=handle.keys.receipt(settings.sender),
        control=settings.control or None,
        counters=settings.counters or None,
        ledger=handle.keys.claims(reader) if reader else None,
        ledger_end=handle.keys.claims_end(reader) if reader else None,
        touched=touched_keys(handle, [chunk["queue"] for chunk in settled["follow_ups"]]) if adds else None,
    )
    return reply


@lru_cache(maxsize=128)
def _packed(limits: GroupLimits) -> bytes:
    packed: bytes = msgpack.packb(limits.given | {"path": limits.by.split(".")})
    return packed


def unpack_work(reply: bytes) -> WorkReply:
    """Unpacks a reply of `work`."""
    answer: WorkReply = msgpack.unpackb(reply, raw=False, strict_map_key=False, unicode_errors="replace")
    return answer


def claimed(handle: QueueHandle, job_ids: Sequence[str], fields: Sequence[str]) -> dict[str, object]:
    """Reads fields of claimed jobs again, as columns by name; see core/lua/lib/claim_jobs.lua."""
    ids = msgpack.packb(list(job_ids), use_bin_type=False)
    reply = handle.run("claimed", {"ids": ids, "fields": fields})
    columns: dict[str, object] = msgpack.unpackb(reply, raw=False, unicode_errors="replace")
    return columns


def extend(handle: QueueHandle, token: str, job_ids: Sequence[str], lock_ms: int) -> list[str]:
    """Extends the locks that hold `token`; returns the ids of jobs whose lock no longer holds it."""
    lost: list[bytes] = handle.run("extend", {"lock_token": token, "lock_ms": lock_ms, "ids": job_ids})
    return [job_id.decode() for job_id in lost]


def start(handle: QueueHandle, token: str, job_ids: Sequence[str]) -> list[str]:
    """Starts claimed jobs that can expire; returns the ids of those that have expired, or are locked by others."""
    kept: list[bytes] = handle.run("start", {"lock_token": token, "ids": job_ids})
    return [job_id.decode() for job_id in kept]


def relock(handle: QueueHandle, token: str, job_ids: Sequence[str], lock_ms: int) -> int:
    """Locks those jobs that are active without a lock, or whose lock of this token is shorter; returns their number."""
    return int(handle.run("relock", {"lock_token": token, "lock_ms": lock_ms, "ids": job_ids}))


class StallReply(NamedTuple):
    """Ids of jobs that wait again, and of those that have failed."""

    returned: list[str]
    failed: list[str]


def stall(handle: QueueHandle, token: str, job_ids: Sequence[str], *, max_stalled: int, since: int) -> StallReply:
    """Returns running jobs whose locks hold `token` to the queue, as their process ends: they have stalled.

    since: when the process was already running, ms since 1970.
    """
    args = {"lock_token": token, "max_stalled": max_stalled, "since": since, "ids": job_ids}
    returned, failed = handle.run("stall", args)
    return StallReply([i.decode() for i in returned], [i.decode() for i in failed])


class Promoted(NamedTuple):
    """How many delayed jobs were promoted, and when the next job is due or expires, ms since 1970; None: there is none.

    `now`: time of Redis, ms since 1970. `expired`: number of jobs that have expired.
    """

    moved: int
    next_due: int | None
    now: int
    expired: int = 0

    @property
    def more(self) -> bool:
        """Whether more jobs are due."""
        return self.next_due is not None and self.next_due <= self.now


def promote_due(handle: QueueHandle, limit: int = CHUNK_SIZE) -> Promoted:
    """Moves delayed jobs that are due to the waiting ones, `limit` at most; before that, fails expired jobs."""
    promoted, expired = _promote_due(handle, limit), 0
    if promoted.more and not promoted.moved:
        expired = expire(handle)
        promoted = _promote_due(handle, limit, after_expiry=True)
    return promoted._replace(expired=expired)


def expire(handle: QueueHandle) -> int:
    """Fails jobs that have expired, about a hundred; returns how many have failed."""
    return int(handle.run_once("expire", NO_WORKER))


def _promote_due(handle: QueueHandle, limit: int, *, after_expiry: bool = False) -> Promoted:
    args = {"limit": limit, "after_expiry": int(after_expiry)}
    moved, next_due, now = handle.run_once("promote_due", args)
    return Promoted(int(moved), int(next_due) if next_due else None, int(now))


class AgeReply(NamedTuple):
    """`moved`: number of jobs whose priority was changed. `first`: the priority from which to go on, 0 at the end."""

    moved: int
    first: int


def age(handle: QueueHandle, priority: int, after_ms: int, *, first: int, limit: int = CHUNK_SIZE) -> AgeReply:
    """Gives jobs that have waited for `after_ms` a higher priority; examines about `limit` from priority `first` on."""
    args = {"priority": priority, "after_ms": after_ms, "first": first, "limit": limit}
    return AgeReply(*handle.run("age", args))


class GuardReply(NamedTuple):
    """What the call has done: paused the queue, resumed it, or neither. why: the reason of the pause, "" without one.

    is_moving: whether jobs are still to be moved: call again.
    """

    done: str
    why: str
    is_moving: bool


def guard(handle: QueueHandle, guard: Guard, *, now: int | None = None) -> GuardReply:
    """Pauses the queue if the guard fires, resumes it after the pause. now: ms since 1970; None: Redis' time."""
    condition = guard.condition
    args = {
        "measure": condition.measure,
        "operator": condition.operator,
        "threshold": condition.threshold,
        "window_ms": condition.window_ms,
        "interval_ms": condition.interval_ms,
        "condition": condition.text,
        "resume_after_ms": round(guard.resume_after_s * 1000),
        "min_jobs": guard.min_jobs,
        "finish_times": int(handle.dialect.has("finish-times")),
        "limit": MOVE_SIZE,
        "now": "" if now is None else now,
    }
    done, why, moving = handle.run_once("guard", args, guard=handle.keys.guard(guard.id))
    return GuardReply(done.decode(), why.decode(), bool(moving))


class RescueReply(NamedTuple):
    """The position to go on from, b"" at the end; ids of jobs that wait again, and of those that have failed."""

    position: bytes
    stalled: list[str]
    failed: list[str]


def rescue(handle: QueueHandle, position: bytes, *, max_stalled: int, check_ms: int, limit: int) -> RescueReply:
    """Moves stalled jobs back to the waiting ones, unless a check was made within `check_ms`; `limit` jobs at most."""
    args = {"position": position, "limit": limit, "max_stalled": max_stalled, "check_ms": check_ms}
    reached, stalled, failed = handle.run_once("rescue", args)
    return RescueReply(
        reached, [i.decode("utf-8", "replace") for i in stalled], [i.decode("utf-8", "replace") for i in failed]
    )
