"""Turns results of jobs into outcomes: completed, retried, failed or postponed; kept or removed. Rules for retries."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Final

from spark_bull.core.dialects.base import Dialect, json_text
from spark_bull.core.dialects.encode.codec import rows_of
from spark_bull.core.error_text import reason_of
from spark_bull.core.errors import DialectError, SparkBullError, UnrecoverableError
from spark_bull.core.model.jobs import NewJob, RawJson
from spark_bull.core.model.outcomes import Failed, FollowUp, Keep, Outcomes, RejectedOutcome
from spark_bull.core.queue.dispatch.flows import encode_follow_ups
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.work.claim import read_claimed
from spark_bull.run.job.interrupts import raise_if_interrupted
from spark_bull.run.job.job_options import keep_of
from spark_bull.run.job.job_runner import Result, Texts
from spark_bull.run.job.outcomes import Outcome, StatedOutcome, Strategy, failure, outcome_of, stack_of
from spark_bull.run.job.running_job import RunningJob

log = logging.getLogger("spark_bull")

#: Name of a class -> maximum attempts; 0: the job fails at once.
RetryRules = Mapping[str, int]

_HEADER: Final = "Traceback (most recent call last):\n"


def attempts_after(rules: RetryRules, error: BaseException) -> int | None:
    """The maximum attempts of a job by the nearest class of its error that has a rule; None: there is none.

    An error that a task of Spark has raised has the class that its trace names.
    """
    if not rules:
        return None
    names = _names_in(error.stack) if isinstance(error, StatedOutcome) else _names_of(type(error))
    return next((rules[name] for name in names if name in rules), None)


def _names_of(kind: type) -> Iterable[str]:
    """The names of a class and of its bases, nearest first."""
    return [base.__name__ for base in kind.__mro__]


def _names_in(trace: str) -> Iterable[str]:
    """The same of the class at the end of a Python trace; without its bases if this process has not imported it."""
    lines = trace.rpartition(_HEADER)[2].splitlines() if _HEADER in trace else []
    raised = next((line for line in lines if line and not line[0].isspace()), "").partition(": ")[0]
    kind = _class_of(raised)
    return [raised.rpartition(".")[2]] if kind is None else _names_of(kind)


def _class_of(full_name: str) -> type | None:
    """An imported class by its name in a trace, which leaves out the modules `builtins` and `__main__`."""
    parts = full_name.split(".")
    modules = [(".".join(parts[:count]), parts[count:]) for count in range(len(parts) - 1, 0, -1)]
    for module, names in (*modules, ("__main__", parts), ("builtins", parts)):
        found: object = sys.modules.get(module)
        for name in names:
            # No other members: reading an attribute may run code.
            found = vars(found).get(name) if isinstance(found, (ModuleType, type)) else None
        if isinstance(found, type):
            return found
    return None


#: strategy(attempts made, backoff type, error, job) -> ms; -1: no more attempts. As in the Node libraries.
BackoffStrategy = Callable[[int, str, BaseException, RunningJob], Any]

#: Maximum characters of a return value as JSON text.
MAX_RETURNVALUE: Final = 2**26
#: Types of most values. To check an object for being a coroutine takes as long as to encode a short text.
_NO_COROUTINES: Final = frozenset({RawJson, bool, dict, float, int, list, str, tuple})
#: The option that says how many completed jobs to keep.
_KEEP: Final = "removeOnComplete"
#: What most processors return, as JSON text.
_NOTHING: Final = "null"


class NoReturnValue(TypeError):
    """The value that a processor returned cannot be stored as JSON."""


@dataclass(frozen=True)
class OutcomePolicy:
    """Turns results into outcomes.

    Its fields are defaults of the worker for jobs whose options do not set them, but `retry` overrides the options.
    """

    keep_completed: Keep = None
    keep_failed: Keep = None
    strategy: BackoffStrategy | None = None
    retry: RetryRules = field(default_factory=dict)
    dead_letter_queue: str | None = None

    def record_together(self, outcomes: Outcomes, dialect: Dialect, results: Texts, most_bytes: int) -> bool:
        """Adds results to the outcomes, as `record` does for each. False: they are large, or stored elsewhere.

        most_bytes: the size of outcomes that are settled together.
        """
        jobs, texts = results.jobs, results.texts
        is_large = outcomes.size + sum(map(len, texts)) > min(most_bytes, MAX_RETURNVALUE)
        if is_large or not jobs[0].handle.payloads.is_plain:
            return False
        keeps, opts = [self.keep_completed] * len(jobs), [job.claimed.opts for job in jobs]
        if _KEEP in "".join(opts):
            keeps = [keep_of(dialect, one, _KEEP, self.keep_completed) for one in opts]
        unwritten = dialect.unwritten_results
        values = ["" if text in unwritten else text for text in texts] if unwritten else texts
        outcomes.complete_all([job.claimed.id for job in jobs], values, keeps)
        return True

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
                keep = keep_of(dialect, claimed.opts, _KEEP, self.keep_completed)
                outcomes.complete(claimed.id, text, keep)
                return
        ending = outcome_of(error)
        if ending.kind == "waiting for children":
            try:
                dialect.require("flows")
            except DialectError as unknown:
                ending = Outcome("failed", error=unknown)
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
        if self.dead_letter_queue is not None and isinstance(decided, Failed):
            outcomes.add_follow_ups(_dead_letter(job, decided, self.dead_letter_queue))


def _dead_letter(job: RunningJob, failed: Failed, queue: str) -> Sequence[FollowUp]:
    """The copy of a failed job that its settlement adds to a queue; none, with a warning, if that cannot have it."""
    origin = {
        "queue": job.queue,
        "id": job.id,
        "failedReason": failed.reason,
        "attemptsMade": job.claimed.attempts_made + 1,
    }
    try:
        copy = NewJob(RawJson(job.data_text), job.name, opts={"deadLetter": origin})
        return encode_follow_ups(job.handle, rows_of([copy]), [job.id], [queue], ["failure"])
    except SparkBullError as error:
        log.warning("job %s of %s failed without a copy in %s: %s", job.id, job.queue, queue, error)
        return ()


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
        return job.handle.sealed("returnvalue", text, f"{job.id}:{job.token}")
    except Exception as error:  # A file system raises anything.
        raise NoReturnValue(f"expected the return value to be stored in `offload_to`: {reason_of(error)}") from None


def _raw_text(value: RawJson) -> str:
    if not isinstance(value.text, str):
        raise TypeError(f"expected the text of RawJson to be a string, got: {type(value.text).__name__}")
    value.text.encode()
    return value.text


def fail_blocked(
    handle: QueueHandle, policy: OutcomePolicy, rejected: Outcomes, lost: Sequence[RejectedOutcome], now: int
) -> Outcomes:
    """Returns the outcomes of jobs that could not complete because of their children; empty if there are none.

    A job with a failed child fails without a further attempt. rejected: their outcomes until now. now: time of Redis,
    ms since 1970.
    """
    outcomes = Outcomes(rejected.token, tokens=rejected.tokens)
    blocked = {one.id: one.why for one in lost if one.is_blocked}
    outcomes.add_follow_ups([one for one in rejected.follow_ups if one.of in blocked])
    for job in read_claimed(handle, list(blocked)):
        error = _blocked_error(job.id, blocked[job.id])
        policy.record(outcomes, handle.dialect, Result(RunningJob(job, handle), None, error), now)
    return outcomes


def _blocked_error(job_id: str, why: str) -> Exception:
    if why == "failed_children":
        return UnrecoverableError(f"Job {job_id} has a failed child and cannot complete")
    return RuntimeError(f"Job {job_id} has pending dependencies and cannot complete before its children")
