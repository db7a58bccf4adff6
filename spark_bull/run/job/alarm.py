"""Interrupts the processor that runs in the main thread, by SIGALRM: its time is over, or its job is cancelled.

The handler is installed once per slot, so that a call costs no system call unless it has a time limit. It raises only
in frames below `interruptible`: the code around a processor is never interrupted.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock, get_ident, main_thread
from types import FrameType
from typing import Any, Final

from spark_bull.core.clock import monotonic_s
from spark_bull.core.errors import JobTimeout
from spark_bull.run.job.forks import in_this_process
from spark_bull.run.job.running_job import RunningJob

#: Interval at which an error is raised again, in case the processor swallowed it.
RAISE_AGAIN_S: Final = 1.0
#: The timer may be early by less than this.
_TIMER_SLACK_S: Final = 0.001

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


def interruptible(jobs: Sequence[RunningJob], limit_ms: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """Returns function(*arguments); see also `in_this_process`.

    In the main thread it raises JobTimeout in the function after `limit_ms` (0: never), and JobCancelled when one of
    these jobs is cancelled, again every second until the function ends. In other threads it does neither.
    """
    global _jobs, _limit_ms, _deadline
    if get_ident() != _thread_id:
        if not limit_ms or get_ident() != main_thread().ident:
            return in_this_process(function, *arguments)
        with handling_alarms():
            return interruptible(jobs, limit_ms, function, *arguments)
    _jobs = jobs
    try:
        if limit_ms:
            _limit_ms, _deadline = limit_ms, monotonic_s() + limit_ms / 1000 - _TIMER_SLACK_S
            signal.setitimer(signal.ITIMER_REAL, limit_ms / 1000, RAISE_AGAIN_S)
        return in_this_process(function, *arguments)
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
