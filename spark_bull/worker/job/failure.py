"""Decides whether a job whose attempt failed is retried, and when."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from spark_bull.clock import LAST_ETA_MS, epoch_ms
from spark_bull.dialects.backoff import fixed_ms
from spark_bull.dialects.base import Dialect, json_text
from spark_bull.error_text import reason_of, sendable
from spark_bull.model.outcomes import ClaimedJob, Failed, Keep, Retried
from spark_bull.worker.job.interrupts import raise_if_interrupted
from spark_bull.worker.job.job_options import is_number, job_options, keep_of

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
    strategy: computes backoff of types that are not built in. default_keep: for jobs without `removeOnFail`.
    """
    options = job_options(job.opts)
    reason = reason_of(error) if isinstance(error, BaseException) else sendable(error)
    traces = _with_trace(job.stacktrace, stack, dialect.stack_limit(options.stack_limit))
    allowed = options.attempts if job.attempts is None else job.attempts
    if attempts is not None and not options.at_most_once:
        allowed = attempts
    made = job.attempts_made + 1
    delay = -1
    if made < allowed and not unrecoverable:
        try:
            delay = min(_backoff_ms(dialect, options.backoff, made, error, strategy), LAST_ETA_MS - epoch_ms())
        except BackoffFailed as failed:
            reason = f"{reason} ({failed})"
    if delay < 0:
        return Failed(job.id, reason, traces, keep_of(dialect, job.opts, "removeOnFail", default_keep), allowed)
    return Retried(job.id, reason, traces, delay, options.lifo)


def _with_trace(traces: str | None, stack: str | None, limit: int | None) -> str:
    """Appends a trace to the JSON list of a job's traces and keeps the last `limit` of them."""
    try:
        known = json.loads(traces) if traces else []
    except (ValueError, RecursionError):
        known = []
    kept: list[Any] = known if isinstance(known, list) else []
    if stack is not None:
        kept = [*kept, stack]
        if limit is not None and limit >= 0:
            kept = kept[-limit:] if limit else []
    return json_text("stacktrace", kept)


def _backoff_ms(
    dialect: Dialect,
    backoff: Mapping[str, Any] | None,
    made: int,
    error: BaseException | str,
    strategy: Strategy | None,
) -> int:
    """Returns the ms until the next attempt; 0: immediately, -1: never, as for an unknown type."""
    if not backoff:
        return 0
    kind, delay, jitter = backoff.get("type"), backoff.get("delay"), backoff.get("jitter")
    if not is_number(delay):
        delay = 0
    if not dialect.has("jitter") or not is_number(jitter):
        jitter = 0
    if kind == "fixed":
        return fixed_ms(delay, min(jitter, 1))
    if kind == "exponential":
        return dialect.exponential_ms(delay, min(made, _MAX_EXPONENT), min(jitter, 1))
    if strategy is None:
        return -1
    try:
        ms = strategy(made, str(kind), error if isinstance(error, BaseException) else RuntimeError(error))
    except BaseException as raised:
        raise_if_interrupted()
        raise BackoffFailed(f"no more attempts: the backoff strategy raised {reason_of(raised)}") from None
    if not is_number(ms):
        raise BackoffFailed(f"no more attempts: expected the backoff strategy to return ms, got: {type(ms).__name__}")
    return int(ms)
