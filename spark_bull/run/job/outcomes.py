"""How an attempt of a job ends: what its function has returned or raised, as text and as an outcome; and whether and
when a failed job is retried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

from spark_bull.core.clock import LAST_ETA_MS, epoch_ms
from spark_bull.core.dialects.base import Dialect, json_text
from spark_bull.core.dialects.terms import DEFAULT_MS, fixed_ms
from spark_bull.core.error_text import reason_of, sendable, trace_of
from spark_bull.core.errors import FINAL, DelayedError, RateLimitError, ReturnedError, WaitingForChildren
from spark_bull.core.model.javascript import given_number, number_of, whole
from spark_bull.core.model.job_json import json_or_text
from spark_bull.core.model.outcomes import ClaimedJob, Delayed, Failed, Keep, Outcomes, Rested, Retried
from spark_bull.run.job.interrupts import raise_if_interrupted
from spark_bull.run.job.job_options import job_options, keep_of
from spark_bull.run.job.job_runner import JobExpired

#: strategy(attempts made, backoff type, error) -> ms; -1: no more attempts.
Strategy = Callable[[int, str, BaseException], Any]

#: Exponent at which exponential backoff stops growing; the delay is beyond all limits by then.
_MAX_EXPONENT: Final = 60


class BackoffFailed(ValueError):
    """A backoff strategy raised an exception, or did not return a number (ms)."""


def failure(
    dialect: Dialect,
    job: ClaimedJob,
    error: BaseException | str,
    *,
    stack: str | None = None,
    unrecoverable: bool = False,
    attempts: int | None = None,
    strategy: Strategy | None = None,
    default_keep: Keep = None,
) -> Failed | Retried:
    """Decides whether a job whose attempt failed is retried, immediately or after a delay, or has failed.

    stack: text of the trace to store; None stores none. unrecoverable: whether remaining attempts are skipped.
    attempts: maximum number of attempts, instead of the job's own.
    strategy: computes backoff of types that are not built in; without one it is `exponential`, and the reason says so.
    default_keep: for jobs without `removeOnFail`.
    """
    options = job_options(job.opts)
    reason = reason_of(error) if isinstance(error, BaseException) else sendable(error)
    traces = _with_trace(job.stacktrace, stack, dialect.stack_limit(options.stack_limit))
    allowed = dialect.attempts_of(options.attempts) if job.attempts is None else job.attempts
    if attempts is not None and not options.at_most_once:
        allowed = attempts
    made = job.attempts_made + 1
    delay = -1
    if made < allowed and not unrecoverable:
        try:
            delay, note = _backoff(dialect, options.backoff, made, error, strategy)
            delay = min(delay, LAST_ETA_MS - epoch_ms())
        except BackoffFailed as failed:
            note = str(failed)
        reason = f"{reason} ({note})" if note else reason
    if delay < 0:
        return Failed(job.id, reason, traces, keep_of(dialect, job.opts, "removeOnFail", default_keep), allowed)
    return Retried(job.id, reason, traces, delay, options.lifo)


def _with_trace(traces: str | None, stack: str | None, limit: int | None) -> str:
    """Appends a trace to the JSON list of a job's traces and keeps the last `limit` of them."""
    known = json_or_text(traces)
    kept: list[Any] = known if isinstance(known, list) else []
    if stack is not None:
        kept = [*kept, stack]
        if limit is not None:
            kept = kept[-limit:] if limit else []
    return json_text("stacktrace", kept)


def _backoff(
    dialect: Dialect,
    backoff: Mapping[str, Any] | None,
    made: int,
    error: BaseException | str,
    strategy: Strategy | None,
) -> tuple[int, str]:
    """The ms until the next attempt, 0: at once, -1: never; and what the job's reason says of it, mostly nothing."""
    if backoff is None:
        return 0, ""
    kind, note = backoff.get("type"), ""
    delay = whole(number_of(backoff.get("delay")))
    jitter = max(0, min(number_of(backoff.get("jitter")), 1)) if dialect.has("jitter") else 0
    if kind not in ("fixed", "exponential"):
        if strategy is not None:
            return _checked(_strategy_ms(strategy, made, str(kind), error)), ""
        kind, note = "exponential", _unknown_type(kind)
        delay = max(0, delay) or DEFAULT_MS
    if kind == "fixed":
        return _checked(fixed_ms(delay, jitter)), note
    return _checked(dialect.exponential_ms(delay, min(made, _MAX_EXPONENT), jitter)), note


def _checked(ms: int) -> int:
    """-1 as it is; the Node libraries do not wait for another negative number."""
    return ms if ms == -1 else max(0, ms)


def _unknown_type(kind: object) -> str:
    return (
        f"retried as `exponential`: expected `backoff_strategy` for the backoff type {str(kind)[:100]!r}, got none; "
        "pass that function to the worker"
    )


def _strategy_ms(strategy: Strategy, made: int, kind: str, error: BaseException | str) -> int:
    """What a backoff strategy returns, ms. Raises BackoffFailed."""
    try:
        ms = strategy(made, kind, error if isinstance(error, BaseException) else RuntimeError(error))
    except BaseException as raised:
        raise_if_interrupted()
        raise BackoffFailed(f"no more attempts: the backoff strategy raised {reason_of(raised)}") from None
    number = given_number(ms)
    if number is None:
        raise BackoffFailed(f"no more attempts: expected the backoff strategy to return ms, got: {type(ms).__name__}")
    return whole(number)


#: `failed`: it may be retried. `unstarted`: it has expired. Only the two failures count the attempt.
OutcomeKind = Literal[
    "failed",
    "failed for good",
    "delayed by",
    "delayed until",
    "returned",
    "rested",
    "waiting for children",
    "unstarted",
]


class Outcome(NamedTuple):
    """What becomes of a job. ms: the delay, its end (since 1970), or the rate limit of a returned job, or of
    the group of a `rested` one.

    error: why the attempt failed, else None.
    """

    kind: OutcomeKind
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


class StatedOutcome(Exception):
    """An ending that a row or the trace of a task states.

    reason: the message, of an attempt that has failed. stack: the trace to store; None: the reason.
    """

    def __init__(self, kind: OutcomeKind, reason: str, *, ms: int = 0, stack: str | None = None) -> None:
        super().__init__(reason)
        self.kind = kind
        self.ms = ms
        self.stack = reason if stack is None else stack

    @property
    def ending(self) -> Outcome:
        return Outcome(self.kind, self.ms, self if self.kind.startswith("failed") else None)


def stack_of(error: BaseException) -> str:
    """The trace to store of a failed attempt."""
    return error.stack if isinstance(error, StatedOutcome) else trace_of(error)


def outcome_of(error: BaseException) -> Outcome:
    """Decides what becomes of the job of an error. An error whose attributes are invalid fails the attempt."""
    try:
        if isinstance(error, StatedOutcome):
            return error.ending
        if isinstance(error, JobExpired):
            return Outcome("unstarted")
        if isinstance(error, DelayedError):
            return Outcome("delayed by" if error.until is None else "delayed until", error.due(0))
        if isinstance(error, RateLimitError):
            return Outcome("rested" if error.group else "returned", error.rest())
        if isinstance(error, ReturnedError):
            return Outcome("returned")
        if isinstance(error, WaitingForChildren):
            return Outcome("waiting for children")
    except (AttributeError, TypeError, ValueError) as invalid:  # A processor, or a subclass, has changed attributes.
        return Outcome("failed", error=invalid)
    return Outcome("failed for good" if isinstance(error, FINAL) else "failed", error=error)
