"""Runs coroutine functions of jobs as tasks of one event loop, in a thread."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from spark_bull.core.threads import DaemonThread
from spark_bull.run.job.alarm import RAISE_AGAIN_S, timeout_error
from spark_bull.run.job.forks import end_fork, generation
from spark_bull.run.job.job_runner import JobExpired, Result
from spark_bull.run.job.running_job import RunningJob

T = TypeVar("T")
CoroutineFunction = Callable[[RunningJob], Awaitable[Any]]


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Whether a call of it returns a coroutine: a function, a method, a partial, or an object that is called."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


@dataclass(eq=False)
class _Run:
    """One task. `error`: why it is being cancelled. `timer`: when it is cancelled next."""

    task: asyncio.Task[Result]
    error: BaseException | None = None
    timer: asyncio.TimerHandle | None = None

    def set_timer(self, timer: asyncio.TimerHandle | None) -> None:
        """Replaces the timer; the former one is cancelled."""
        if self.timer is not None:
            self.timer.cancel()
        self.timer = timer


class JobTasks:
    """Tasks of jobs; `post` gets a Result when one ends.

    A task that exceeds its limit, or whose job is cancelled, is cancelled, again every second until it ends. A
    coroutine that blocks the event loop holds up all the others, and cannot be cancelled.
    """

    def __init__(self, post: Callable[[Result], None]) -> None:
        self._post = post
        self._loop = asyncio.new_event_loop()
        self._runs: dict[RunningJob, _Run] = {}
        self._thread = DaemonThread("tasks", self._loop.run_forever)
        self._thread.start()

    def start(self, job: RunningJob, function: CoroutineFunction, limit_ms: int) -> None:
        """Starts a task for `function(job)`. limit_ms: maximum duration, ms; 0: unlimited."""
        self._loop.call_soon_threadsafe(self._start, job, function, limit_ms)

    def cancel(self, job: RunningJob, error: BaseException) -> None:
        """Cancels the task of this job; `error` becomes its result."""
        self._loop.call_soon_threadsafe(self._end, job, lambda: error)

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Runs a coroutine in the event loop, as a task of its own."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def call(self, function: Callable[[], object]) -> None:
        """Calls a function in the event loop."""
        self._loop.call_soon_threadsafe(function)

    def close(self) -> None:
        """Ends the event loop. Tasks that still run are cancelled; one that blocks the loop is left behind."""
        self._loop.call_soon_threadsafe(self._stop)
        self._thread.join(timeout=1)
        if not self._thread.is_alive():
            self._loop.close()

    def _stop(self) -> None:
        for run in self._runs.values():
            run.task.cancel()
        # The tasks take one step to see that.
        self._loop.call_soon(self._loop.call_soon, self._loop.stop)

    def _start(self, job: RunningJob, function: CoroutineFunction, limit_ms: int) -> None:
        task = self._loop.create_task(_result_of(job, function))
        run = self._runs[job] = _Run(task)
        task.add_done_callback(partial(self._finish, job))
        if limit_ms:
            run.set_timer(self._loop.call_later(limit_ms / 1000, self._time_out, job, limit_ms))

    def _finish(self, job: RunningJob, task: asyncio.Task[Result]) -> None:
        run = self._runs.pop(job)
        run.set_timer(None)
        result = Result(job, None, asyncio.CancelledError()) if task.cancelled() else task.result()
        if run.error is not None and isinstance(result.error, asyncio.CancelledError):
            result = Result(job, None, run.error)
        self._post(result)

    def _time_out(self, job: RunningJob, limit_ms: int) -> None:
        run = self._runs.get(job)
        if run is not None and (extended_s := job.extended_s):
            run.set_timer(self._loop.call_later(extended_s, self._time_out, job, limit_ms))
        else:
            self._end(job, partial(timeout_error, limit_ms))

    def _end(self, job: RunningJob, make_error: Callable[[], BaseException]) -> None:
        run = self._runs.get(job)
        if run is None:
            return
        run.error = run.error or make_error()
        run.task.cancel()
        run.set_timer(self._loop.call_later(RAISE_AGAIN_S, self._end, job, make_error))


async def _result_of(job: RunningJob, function: CoroutineFunction) -> Result:
    if job.has_expired:
        return Result(job, None, JobExpired())
    before = generation()
    try:
        result = Result(job, await function(job), None)
    except BaseException as error:
        result = Result(job, None, error)
    end_fork(before, result.error)
    return result
