"""Runs a processor over claimed jobs, one result per job, and turns results into outcomes."""

from __future__ import annotations

import signal
import threading
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final, NamedTuple, Protocol

from spark_bull.dialects.base import Dialect
from spark_bull.errors import DelayedError, JobTimeout, RateLimitError, UnrecoverableError
from spark_bull.outcomes import ClaimedJob, Delayed, Failed, Keep, Outcomes
from spark_bull.runtime.job import RunningJob
from spark_bull.runtime.settling import BackoffStrategy, NoReturnValue, failure, keep_of, returnvalue_text

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
            except (Exception, SystemExit) as error:
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
class Rules:
    """How results become outcomes, beside what a job's own options say: the worker's defaults."""

    keep_completed: Keep = None
    keep_failed: Keep = None
    strategy: BackoffStrategy | None = None

    def note(self, outcomes: Outcomes, dialect: Dialect, result: Result, now: int) -> None:
        """Puts one result among the outcomes. now: Redis' clock, ms since 1970."""
        claimed, error = result.job.claimed, result.error
        if error is None:
            try:
                text = returnvalue_text(dialect, result.value)
            except NoReturnValue as no_value:
                error = no_value
            else:
                keep = keep_of(dialect, claimed.opts, "removeOnComplete", self.keep_completed)
                outcomes.complete(claimed, text, keep, childless=not (result.job.is_known or claimed.may_be_parent))
                return
        if isinstance(error, DelayedError):
            until = error.until if error.until is not None else now + (error.delay or 0)
            outcomes.delayed.append(Delayed(claimed.id, until))
        elif isinstance(error, RateLimitError):
            outcomes.returned.append(claimed.id)
            outcomes.limited_ms = max(outcomes.limited_ms, error.duration)
        else:
            self._note_failure(outcomes, dialect, claimed, error, discarded=result.job.discarded)

    def _note_failure(
        self, outcomes: Outcomes, dialect: Dialect, claimed: ClaimedJob, error: BaseException, *, discarded: bool
    ) -> None:
        decided = failure(
            dialect,
            claimed,
            error,
            stack=stack_of(error),
            unrecoverable=discarded or isinstance(error, UnrecoverableError),
            strategy=self.strategy,
            default_keep=self.keep_failed,
        )
        if isinstance(decided, Failed):
            outcomes.failed.append(decided)
        else:
            outcomes.retried.append(decided)


def stack_of(error: BaseException) -> str:
    """The trace of an error as text, from the processor's own frame on."""
    trace = error.__traceback__
    own = trace.tb_next if trace is not None and trace.tb_frame.f_code.co_filename == __file__ else trace
    return "".join(traceback.format_exception(type(error), error, own)).rstrip()
