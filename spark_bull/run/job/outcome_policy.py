"""Turns the results of jobs into outcomes: completed, retried, failed or postponed; kept or removed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

from spark_bull.core.dialects.base import Dialect, json_text
from spark_bull.core.error_text import reason_of
from spark_bull.core.errors import DialectError
from spark_bull.core.model.jobs import RawJson
from spark_bull.core.model.outcomes import Keep, Outcomes
from spark_bull.run.job.ending import Ending, outcome_of, stack_of
from spark_bull.run.job.failure import Strategy, failure
from spark_bull.run.job.interrupts import raise_if_interrupted
from spark_bull.run.job.job_options import keep_of
from spark_bull.run.job.job_runner import Result
from spark_bull.run.job.retry_rules import RetryRules, attempts_after
from spark_bull.run.job.running_job import RunningJob

#: strategy(attempts made, backoff type, error, job) -> ms; -1: no more attempts. As in the Node libraries.
BackoffStrategy = Callable[[int, str, BaseException, RunningJob], Any]

#: Maximum characters of a return value as JSON text.
MAX_RETURNVALUE: Final = 2**26
#: Types of most values. To check an object for being a coroutine takes as long as to encode a short text.
_NO_COROUTINES: Final = frozenset({RawJson, bool, dict, float, int, list, str, tuple})
#: What most processors return, as JSON text.
_NOTHING: Final = "null"


class NoReturnValue(TypeError):
    """The value that a processor returned cannot be stored as JSON."""


@dataclass(frozen=True)
class OutcomePolicy:
    """Turns results into outcomes.

    Its fields are defaults of the worker, for jobs whose options do not set them, but `retry` overrides those of jobs.
    """

    keep_completed: Keep = None
    keep_failed: Keep = None
    strategy: BackoffStrategy | None = None
    retry: RetryRules = field(default_factory=dict)

    def record(self, outcomes: Outcomes, dialect: Dialect, result: Result, now: int) -> None:
        """Adds one result to the outcomes. now: time of Redis, ms since 1970. Never raises."""
        job, value, error = result
        claimed = job.claimed
        if job.follow_ups:
            outcomes.add_follow_ups(job.follow_ups)
        if error is not None:
            # What a processor raises instead of JobCancelled, such as DelayedError, must not start the job again.
            error = job.cancellation or error
        if error is None:
            try:
                text = returnvalue_text(dialect, value)
                if not job.handle.payloads.is_plain:
                    text = _kept_value(job, text)
            except NoReturnValue as no_value:
                error = no_value
            else:
                keep = keep_of(dialect, claimed.opts, "removeOnComplete", self.keep_completed)
                outcomes.complete(claimed.id, text, keep)
                return
        ending = outcome_of(error)
        if ending.kind == "waiting for children":
            try:
                dialect.require("flows")
            except DialectError as unknown:
                ending = Ending("failed", error=unknown)
        if ending.error is None:
            ending.postpone(outcomes, claimed.id, now)
            return
        attempts = attempts_after(self.retry, ending.error)
        decided = failure(
            dialect,
            claimed,
            ending.error,
            stack=stack_of(ending.error),
            unrecoverable=job.discarded or ending.kind == "failed for good" or attempts == 0,
            attempts=attempts or None,
            strategy=strategy_for(self.strategy, job),
            default_keep=self.keep_failed,
        )
        outcomes.add_failure(decided)


def strategy_for(strategy: BackoffStrategy | None, job: RunningJob) -> Strategy | None:
    """Binds the user's strategy to a job; None if there is none."""
    return None if strategy is None else lambda made, kind, error: strategy(made, kind, error, job)


def returnvalue_text(dialect: Dialect, value: Any) -> str:
    """Encodes the value that a processor returned as JSON text; '' for a value that the dialect does not store.

    Raises NoReturnValue if JSON cannot hold the value, or its text is too long.
    """
    if value is None:
        return "" if _NOTHING in dialect.unwritten_results else _NOTHING
    if type(value) not in _NO_COROUTINES and isinstance(value, Coroutine):
        value.close()
        raise NoReturnValue(
            "expected the processor to return a value that JSON can hold, got a coroutine, which has not run: "
            "pass the coroutine function itself as the processor"
        )
    try:
        text = _raw_text(value) if isinstance(value, RawJson) else json_text("returnvalue", value)
    except BaseException as error:  # A value may hold objects whose methods raise anything.
        raise_if_interrupted()
        raise NoReturnValue(
            "expected the processor to return a value that JSON can hold, "
            f"got {type(value).__name__}: {reason_of(error)}"
        ) from None
    if len(text) > MAX_RETURNVALUE:
        raise NoReturnValue(
            f"expected the processor to return at most {MAX_RETURNVALUE:,} characters of JSON, got {len(text):,}: "
            "store the result elsewhere and return its location"
        )
    return "" if text in dialect.unwritten_results else text


def _kept_value(job: RunningJob, text: str) -> str:
    """What Redis has of a return value. Raises NoReturnValue if it cannot be stored elsewhere."""
    try:
        return job.handle.kept("returnvalue", text, f"{job.id}:{job.token}")
    except Exception as error:  # A file system raises anything.
        raise NoReturnValue(f"expected the return value to be stored in `offload_to`: {reason_of(error)}") from None


def _raw_text(value: RawJson) -> str:
    if not isinstance(value.text, str):
        raise TypeError(f"expected the text of RawJson to be a string, got: {type(value.text).__name__}")
    value.text.encode()
    return value.text
