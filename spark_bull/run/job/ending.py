"""Decides what becomes of a job whose processor has raised an exception."""

from __future__ import annotations

from typing import Literal, NamedTuple

from spark_bull.core.clock import LAST_ETA_MS
from spark_bull.core.error_text import trace_of
from spark_bull.core.errors import FINAL, DelayedError, RateLimitError, ReturnedError, WaitingForChildren
from spark_bull.core.model.outcomes import Delayed, Outcomes, Rested
from spark_bull.run.job.job_runner import JobExpired

#: `failed`: it may be retried. `unstarted`: it has expired. Only the two failures count the attempt.
EndingKind = Literal[
    "failed",
    "failed for good",
    "delayed by",
    "delayed until",
    "returned",
    "rested",
    "waiting for children",
    "unstarted",
]


class Ending(NamedTuple):
    """What becomes of a job. ms: the delay, its end (since 1970), or the rate limit of a returned job, or of
    the group of a `rested` one.

    error: why the attempt failed, else None.
    """

    kind: EndingKind
    ms: int = 0
    error: BaseException | None = None

    def postpone(self, outcomes: Outcomes, job_id: str, now: int) -> None:
        """Adds a job that has not failed to the outcomes. now: time of Redis, ms since 1970."""
        if self.kind == "unstarted":
            outcomes.unstarted.append(job_id)
        elif self.kind == "waiting for children":
            outcomes.waiting_for_children.append(job_id)
        elif self.kind == "returned":
            outcomes.returned.append(job_id)
            if self.ms:
                outcomes.limited_ms = max(outcomes.limited_ms, self.ms)
            else:
                outcomes.counted_returns.append(job_id)
        elif self.kind == "rested":
            outcomes.rested.append(Rested(job_id, self.ms))
        else:
            until = self.ms if self.kind == "delayed until" else now + self.ms
            outcomes.delayed.append(Delayed(job_id, min(until, LAST_ETA_MS)))


class Stated(Exception):
    """An ending that a row or the trace of a task states.

    reason: the message, of an attempt that has failed. stack: the trace to store; None: the reason.
    """

    def __init__(self, kind: EndingKind, reason: str, *, ms: int = 0, stack: str | None = None) -> None:
        super().__init__(reason)
        self.kind = kind
        self.ms = ms
        self.stack = reason if stack is None else stack

    @property
    def ending(self) -> Ending:
        return Ending(self.kind, self.ms, self if self.kind.startswith("failed") else None)


def stack_of(error: BaseException) -> str:
    """The trace to store of a failed attempt."""
    return error.stack if isinstance(error, Stated) else trace_of(error)


def outcome_of(error: BaseException) -> Ending:
    """Decides what becomes of the job of an error. An error whose attributes are invalid fails the attempt."""
    try:
        if isinstance(error, Stated):
            return error.ending
        if isinstance(error, JobExpired):
            return Ending("unstarted")
        if isinstance(error, DelayedError):
            return Ending("delayed by" if error.until is None else "delayed until", error.due(0))
        if isinstance(error, RateLimitError):
            return Ending("rested" if error.group else "returned", error.rest())
        if isinstance(error, ReturnedError):
            return Ending("returned")
        if isinstance(error, WaitingForChildren):
            return Ending("waiting for children")
    except (AttributeError, TypeError, ValueError) as invalid:  # A processor, or a subclass, has changed attributes.
        return Ending("failed", error=invalid)
    return Ending("failed for good" if isinstance(error, FINAL) else "failed", error=error)
