"""The verbs of background services: one function for each script, with its name; see core/queue/handle/verbs.py."""

from __future__ import annotations

from typing import NamedTuple

from spark_bull.core.model.guards import Guard
from spark_bull.core.queue.handle.claim_settings import NO_WORKER
from spark_bull.core.queue.handle.handle import CHUNK_SIZE, MOVE_SIZE, QueueHandle


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
    """Looks at the queue for a guard; pauses or resumes it if that is due. now: ms since 1970; None: that of Redis."""
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
