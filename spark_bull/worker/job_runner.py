"""Runs a processor over claimed jobs, one result per job, and turns results into outcomes."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final, NamedTuple, Protocol

from spark_bull.dialects.base import Dialect
from spark_bull.errors import DelayedError, JobDamaged, JobTimeout, OptionError, RateLimitError, UnrecoverableError
from spark_bull.outcomes import Delayed, Failed, Keep, Outcomes
from spark_bull.worker.error_text import trace_of
from spark_bull.worker.interrupts import raise_if_interrupted
from spark_bull.worker.outcome_policy import NoReturnValue, Strategy, failure, keep_of, returnvalue_text
from spark_bull.worker.running_job import RunningJob

#: strategy(attempts made, backoff type, error, job) -> ms; -1: no further attempt. As in the Node libraries.
BackoffStrategy = Callable[[int, str, BaseException, RunningJob], Any]

#: How often a timeout is raised again, should the processor have swallowed it.
_AGAIN_S: Final = 1.0


class Result(NamedTuple):
    """What a processor made of one job: its value, or the error it raised."""

    job: RunningJob
    value: Any
    error: BaseException | None


class Runner(Protocol):
    """Runs jobs; yields a result for each, in their order. Picklable.

    `one_by_one`: each result is there before the next job starts, so that the rest may be given back. Jobs whose id is
    in `lost` when their turn comes belong to another worker now, and are passed over.
    """

    @property
    def one_by_one(self) -> bool: ...

    def __call__(self, jobs: Sequence[RunningJob], lost: Collection[str]) -> Iterator[Result]: ...


@dataclass(frozen=True)
class FunctionRunner:
    """Calls f(job) for one job after the other. timeout_ms: for jobs that say none themselves, 0: none."""

    processor: Callable[[RunningJob], Any]
    timeout_ms: int = 0

    one_by_one = True

    def __call__(self, jobs: Sequence[RunningJob], lost: Collection[str]) -> Iterator[Result]:
        processor = self.processor
        for job in jobs:
            if job.claimed.id in lost:
                continue
            limit_ms = job.timeout or self.timeout_ms
            try:
                if limit_ms:
                    with time_limit(limit_ms):
                        value = processor(job)
                else:
                    value = processor(job)
            except BaseException as error:
                raise_if_interrupted()
                yield Result(job, None, error)
            else:
                yield Result(job, value, None)


@contextmanager
def time_limit(limit_ms: int) -> Iterator[None]:
    """Raises JobTimeout in the block once it has taken `limit_ms`, 0: never. Does nothing outside the main thread."""
    if not limit_ms or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(_signal: int, _frame: FrameType | None) -> None:
        raise JobTimeout(f"expected the job to take {limit_ms:,} ms at most (its timeout), it took longer")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, limit_ms / 1000, _AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@dataclass(frozen=True)
class OutcomePolicy:
    """How results become outcomes, beside what a job's own options say: the worker's defaults."""

    keep_completed: Keep = None
    keep_failed: Keep = None
    strategy: BackoffStrategy | None = None

    def note(self, outcomes: Outcomes, dialect: Dialect, result: Result, now: int) -> None:
        """Puts one result among the outcomes. now: Redis' clock, ms since 1970. Raises nothing."""
        claimed, error = result.job.claimed, result.error
        if error is None:
            try:
                text = returnvalue_text(dialect, result.value)
            except NoReturnValue as no_value:
                error = no_value
            else:
                keep = keep_of(dialect, claimed.opts, "removeOnComplete", self.keep_completed)
                outcomes.complete(claimed, text, keep)
                return
        try:
            if isinstance(error, DelayedError):
                outcomes.delayed.append(Delayed(claimed.id, error.due(now)))
                return
            if isinstance(error, RateLimitError):
                outcomes.limited_ms = max(outcomes.limited_ms, error.rest())
                outcomes.returned.append(claimed.id)
                return
        except (AttributeError, OptionError) as incomplete:  # A subclass, or a processor, has changed its attributes.
            error = incomplete
        self._note_failure(outcomes, dialect, result.job, error)

    def _note_failure(self, outcomes: Outcomes, dialect: Dialect, job: RunningJob, error: BaseException) -> None:
        decided = failure(
            dialect,
            job.claimed,
            error,
            stack=trace_of(error),
            unrecoverable=job.discarded or isinstance(error, (UnrecoverableError, JobDamaged)),
            strategy=strategy_for(self.strategy, job),
            default_keep=self.keep_failed,
        )
        outcomes.size += len(decided.reason) + len(decided.stack)
        if isinstance(decided, Failed):
            outcomes.failed.append(decided)
        else:
            outcomes.retried.append(decided)


def strategy_for(strategy: BackoffStrategy | None, job: RunningJob) -> Strategy | None:
    """The user's strategy for this job; None when there is none."""
    return None if strategy is None else lambda made, kind, error: strategy(made, kind, error, job)
