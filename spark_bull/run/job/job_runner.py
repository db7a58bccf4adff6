"""Runs a processor over claimed jobs in the main thread, one result per job, and interrupts it by SIGALRM.

It is interrupted when its time is over, or its job is cancelled. The handler is installed once per slot, so that a call
costs no system call unless it has a time limit. It raises only in frames below `interruptible`: the code around a
processor is never interrupted.

A batch that raises is split in halves until each bad item is alone.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from threading import Lock, get_ident, main_thread
from types import FrameType
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from spark_bull.core.clock import monotonic_s
from spark_bull.core.errors import JobTimeout, ProcessorMissing
from spark_bull.core.model.jobs import RawJson
from spark_bull.run.job.interrupts import in_this_process, raise_if_interrupted
from spark_bull.run.job.job_options import timeout_of
from spark_bull.run.job.running_job import RunningJob

#: Interval at which an error is raised again, in case the processor swallowed it.
RAISE_AGAIN_S: Final = 1.0
#: The timer may be early by less than this.
_TIMER_SLACK_S: Final = 0.001

Argument = TypeVar("Argument")
Value = TypeVar("Value")

_jobs: Sequence[RunningJob] = ()
_limit_ms = 0
_deadline = math.inf
#: The main thread, while the handler is installed.
_thread_id = 0
_installing: Final = Lock()


def timeout_error(limit_ms: int) -> JobTimeout:
    """The error of a job that runs longer than `limit_ms`."""
    return JobTimeout(f"expected the job to take {limit_ms:,} ms at most (its timeout), it took longer")


@contextmanager
def handling_alarms() -> Iterator[None]:
    """Lets processors be interrupted in this block. Has no effect outside the main thread."""
    global _thread_id
    if _thread_id or get_ident() != main_thread().ident:
        yield
        return
    previous = signal.signal(signal.SIGALRM, _on_alarm)
    _thread_id = get_ident()
    try:
        yield
    finally:
        with _installing:
            _thread_id = 0
            signal.signal(signal.SIGALRM, previous)


def interruptible(
    jobs: Sequence[RunningJob], limit_ms: int, function: Callable[[Argument], Value], argument: Argument
) -> Value:
    """Returns function(argument); see also `in_this_process`.

    In the main thread it raises JobTimeout in the function after `limit_ms` (0: never), and JobCancelled when one of
    these jobs is cancelled, again every second until the function ends. In other threads it does neither.
    """
    global _jobs, _limit_ms, _deadline
    if get_ident() != _thread_id:
        if not limit_ms or get_ident() != main_thread().ident:
            return in_this_process(function, argument)
        with handling_alarms():
            return interruptible(jobs, limit_ms, function, argument)
    _jobs = jobs
    try:
        if limit_ms:
            _limit_ms, _deadline = limit_ms, monotonic_s() + limit_ms / 1000 - _TIMER_SLACK_S
            signal.setitimer(signal.ITIMER_REAL, limit_ms / 1000, RAISE_AGAIN_S)
        return in_this_process(function, argument)
    finally:
        _jobs = ()
        if limit_ms:
            _deadline = math.inf
            signal.setitimer(signal.ITIMER_REAL, 0)


def interrupt(job: RunningJob) -> None:
    """Interrupts the call that runs for this cancelled job, if there is one; may be called in any thread."""
    with _installing:
        if _thread_id and any(running is job for running in _jobs):
            signal.pthread_kill(_thread_id, signal.SIGALRM)


def _on_alarm(_signal: int, frame: FrameType | None) -> None:
    error = _due_error()
    if error is not None and _is_in_processor(frame):
        raise error


def _due_error() -> BaseException | None:
    cancelled = next((job.cancellation for job in _jobs if job.cancellation is not None), None)
    if cancelled is not None:
        return cancelled
    if monotonic_s() < _deadline:
        return None
    extended_s = max((job.extended_s for job in _jobs), default=0.0)
    if extended_s:
        signal.setitimer(signal.ITIMER_REAL, extended_s, RAISE_AGAIN_S)
        return None
    return timeout_error(_limit_ms)


def _is_in_processor(frame: FrameType | None) -> bool:
    """Whether this frame was called, directly or not, by `interruptible`."""
    below = None
    while frame is not None and frame.f_code is not interruptible.__code__:
        below, frame = frame, frame.f_back
    return frame is not None and below is not None


class Result(NamedTuple):
    """The result of one job: the value that its processor returned, or the exception that it raised."""

    job: RunningJob
    value: Any
    error: BaseException | None


class Texts(Sequence[Result]):
    """Results of jobs that have returned JSON texts and have no follow-ups. They can be recorded together."""

    def __init__(self, jobs: Sequence[RunningJob], texts: Sequence[str]) -> None:
        self.jobs = jobs
        self.texts = texts

    def __len__(self) -> int:
        return len(self.jobs)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return Texts(self.jobs[place], self.texts[place])
        return Result(self.jobs[place], RawJson(self.texts[place]), None)


#: Result._make, in a third of its time.
new_result: Final = partial(tuple.__new__, Result)


class JobExpired(Exception):
    """The job has expired since it was claimed, and has not started: it returns to the queue, whose scripts fail it."""


class Runner(Protocol):
    """Runs jobs and yields their results, JobExpired for a job that has expired. Picklable, except on the driver.

    The results of a list became known together; they may be settled before the other jobs end. `one_by_one`: whether
    each result is yielded before the next job starts, in order, so that the rest can be returned to the queue.
    `may_end_process`: whether a job can end the process of the slot, so that one that has stalled runs alone; it calls
    `begin` of such a job. Jobs whose id is in `lost` when they would start have lost their lock and are skipped.
    """

    @property
    def one_by_one(self) -> bool: ...

    @property
    def may_end_process(self) -> bool: ...

    def __call__(self, jobs: Sequence[RunningJob], lost: Collection[str]) -> Iterator[Sequence[Result]]: ...

    def divided(self, jobs: Sequence[RunningJob]) -> Iterable[tuple[Runner, Sequence[RunningJob]]]:
        """The runners of these jobs, in the order in which they are to be called."""
        return [(self, jobs)]

    def interrupt(self, job: RunningJob) -> None:
        """Ends the call that runs for this cancelled job, if there is one; may be called in any thread."""


JobFunction = Callable[[RunningJob], Any]

#: The name under which a processor by name has the function for all other names.
ANY_NAME: Final = "*"


@dataclass(frozen=True)
class FunctionRunner(Runner):
    """Calls processor(job) for one job after the other.

    processor: a function, or functions by the name of the job; "*" stands for all other names. timeout_ms: for jobs
    without their own `timeout`; 0: none. progress_extends: whether progress begins the timeout of a job anew. others:
    names whose jobs have another runner, for errors.
    """

    processor: JobFunction | Mapping[str, JobFunction]
    timeout_ms: int = 0
    progress_extends: bool = False
    others: tuple[str, ...] = ()

    one_by_one = True
    may_end_process = True

    @cached_property
    def functions(self) -> Mapping[str, JobFunction]:
        """The functions by the name of the job."""
        return self.processor if isinstance(self.processor, Mapping) else {ANY_NAME: self.processor}

    def function_for(self, job: RunningJob) -> JobFunction:
        """Returns the function for a job. Raises ProcessorMissing if there is none for its name."""
        function = self.functions.get(job.name or "") or self.functions.get(ANY_NAME)
        if function is None:
            raise ProcessorMissing(
                f"expected a processor for jobs named {job.name!r}, this worker has: "
                f"{', '.join((*self.functions, *self.others))}; add one, or '{ANY_NAME}' for all other names"
            )
        return function

    def begin(self, job: RunningJob) -> int:
        """Sets the start of the attempt to now. Returns the maximum duration of the job, ms; 0: unlimited."""
        limit_ms = self._limit_of(job.claimed.opts)
        job.begin(limit_ms, extends=self.progress_extends)
        return limit_ms

    def _limit_of(self, opts: str) -> int:
        """The maximum duration of a job with these options, ms; 0: unlimited."""
        return timeout_of(opts) or self.timeout_ms

    def interrupt(self, job: RunningJob) -> None:
        interrupt(job)

    def __call__(self, jobs: Sequence[RunningJob], lost: Collection[str]) -> Iterator[Sequence[Result]]:
        only = None if isinstance(self.processor, Mapping) else self.processor
        opts, limit_ms = None, 0
        for job in jobs:
            claimed = job.claimed
            job_id = claimed.id
            if job_id in lost:
                continue
            if job.cancellation is not None:
                yield (Result(job, None, job.cancellation),)
                continue
            # Few jobs expire, and an attribute is read faster than a property.
            if job.expires_s is not None and job.has_expired:
                yield (Result(job, None, JobExpired()),)
                continue
            # Jobs that follow each other have mostly the same options.
            if claimed.opts is not opts:
                opts = claimed.opts
                limit_ms = self._limit_of(opts)
            job.begin(limit_ms, extends=self.progress_extends)
            if job_id in lost:
                # As the process is to end, another thread has returned the job before it began.
                continue
            try:
                value = interruptible((job,), limit_ms, only or self.function_for(job), job)
            except BaseException as error:
                raise_if_interrupted()
                yield (Result(job, None, error),)
            else:
                yield (new_result((job, value, None)),)


class Abandoned(Exception):
    """Raised by `run` for a reason that is not one of its items; run_bisected() stops and raises it again."""


Item = TypeVar("Item")
Outputs = TypeVar("Outputs")


def run_bisected(
    items: Sequence[Item], run: Callable[[Sequence[Item]], Outputs]
) -> Iterator[tuple[Sequence[Item], Outputs | BaseException]]:
    """Yields parts of the items with what `run` returns for them, or one item with the exception that it raises for it.

    The outputs of a half are yielded before the other half is run. `run` is called with all items first, and with each
    half when it raises: about 2 k log2(n / k) further calls for k bad items of n. Every exception is caught except
    Abandoned and the KeyboardInterrupt of a SIGINT that the process received.
    """
    if not items:
        return
    error_of_one: BaseException | None = None
    try:
        outputs = run(items)
    except Abandoned:
        raise
    except BaseException as error:
        raise_if_interrupted()
        if len(items) == 1:
            error_of_one = error
    else:
        yield items, outputs
        return
    if error_of_one is not None:
        yield items, error_of_one
        return
    half = len(items) // 2
    yield from run_bisected(items[:half], run)
    yield from run_bisected(items[half:], run)
