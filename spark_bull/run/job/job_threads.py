"""Runs functions of jobs at the same time: functions in threads, coroutine functions as tasks of one event loop."""

from __future__ import annotations

import asyncio
import ctypes
import inspect
import math
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from threading import Condition, Lock, get_ident
from typing import Any, TypeVar

from spark_bull.core.clock import monotonic_s
from spark_bull.core.threads import DaemonThread
from spark_bull.run.job.interrupts import end_fork, generation, in_this_process
from spark_bull.run.job.job_runner import RAISE_AGAIN_S, JobExpired, JobFunction, Result, timeout_error
from spark_bull.run.job.running_job import RunningJob


@dataclass(eq=False)
class _Call:
    """One call of a function. `deadline`: when it has to be ended, on the monotonic clock, s.

    `error`: why it was abandoned: its result has been posted, but its thread still runs.
    """

    job: RunningJob
    function: JobFunction
    limit_ms: int
    deadline: float = math.inf
    thread_id: int = 0
    error: BaseException | None = None


class JobThreads:
    """A pool of daemon threads, as many as there are functions that run at the same time.

    `post` gets a Result when a function returns or raises. A function that exceeds its limit, or is cancelled, is
    abandoned: its result is posted at once, and the error is raised in its thread, where it takes effect at the next
    bytecode. Python cannot interrupt a blocking call in a thread. A thread that was abandoned ends with its function.
    """

    def __init__(self, post: Callable[[Result | None], None]) -> None:
        self._post = post
        self._calls: dict[RunningJob, _Call] = {}
        self._waiting: SimpleQueue[_Call | None] = SimpleQueue()
        self._idle = 0
        # A plain lock: an exception that is raised in a thread cannot arrive between its acquisition and the block.
        self._lock = Lock()
        self._changed = Condition(self._lock)
        self._watcher: DaemonThread | None = None
        self._is_closed = False

    def start(self, job: RunningJob, function: JobFunction, limit_ms: int) -> None:
        """Calls `function(job)` in a thread. limit_ms: maximum duration from when the thread runs, ms; 0: unlimited."""
        call = _Call(job, function, limit_ms)
        with self._lock:
            self._calls[job] = call
            needs_thread = self._idle == 0
            if not needs_thread:
                self._idle -= 1
        if needs_thread:
            DaemonThread("job", partial(self._serve, call)).start()
        else:
            self._waiting.put(call)

    def cancel(self, job: RunningJob, error: BaseException) -> None:
        """Abandons the function that runs for this job; `error` becomes its result."""
        with self._lock:
            call = self._calls.get(job)
            if call is not None and call.error is None:
                self._abandon(call, error)
                self._watch()

    @property
    def abandoned(self) -> int:
        """How many functions still run whose result has been posted."""
        with self._lock:
            return sum(call.error is not None for call in self._calls.values())

    def close(self) -> None:
        """Ends the threads that run no function."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, 0
            self._changed.notify()
        for _ in range(idle):
            self._waiting.put(None)

    def _serve(self, first: _Call) -> None:
        call: _Call | None = first
        while call is not None and self._run(call):
            call = self._waiting.get()

    def _run(self, call: _Call) -> bool:
        """Runs a function and posts its result. Returns whether the thread may run another one."""
        result = None
        while True:
            try:
                if result is None:
                    result = self._result_of(call)
                return self._finish(call, result)
            except BaseException as error:
                # The error for an abandoned function may arrive after its end.
                result = result or Result(call.job, None, error)

    def _result_of(self, call: _Call) -> Result:
        with self._lock:
            call.thread_id = get_ident()
            error = call.error
            if error is None and call.limit_ms:
                call.deadline = monotonic_s() + call.limit_ms / 1000
                self._watch()
        if error is not None:
            return Result(call.job, None, error)
        if call.job.has_expired:
            return Result(call.job, None, JobExpired())
        return Result(call.job, in_this_process(call.function, call.job), None)

    def _finish(self, call: _Call, result: Result) -> bool:
        with self._lock:
            self._calls.pop(call.job, None)
            is_abandoned = call.error is not None
            if not is_abandoned and not self._is_closed:
                self._idle += 1
        self._post(None if is_abandoned else result)
        return not is_abandoned and not self._is_closed

    def _watch(self) -> None:
        """Lets the watcher look at the deadlines again; to be called with the lock held."""
        if self._watcher is None:
            self._watcher = DaemonThread("timeouts", self._enforce)
            self._watcher.start()
        self._changed.notify()

    def _enforce(self) -> None:
        """Ends functions at their deadlines."""
        with self._changed:
            while not self._is_closed:
                now = monotonic_s()
                for call in list(self._calls.values()):
                    extended_s = call.job.extended_s if call.error is None else 0.0
                    if call.deadline <= now and extended_s:
                        call.deadline = now + extended_s
                    elif call.deadline <= now:
                        self._abandon(call, call.error or timeout_error(call.limit_ms))
                next_s = min((call.deadline for call in self._calls.values()), default=math.inf)
                self._changed.wait(None if next_s == math.inf else max(0.0, next_s - monotonic_s()))

    def _abandon(self, call: _Call, error: BaseException) -> None:
        """Posts the result, once, and raises the error in the thread; to be called with the lock held."""
        if call.error is None:
            call.error = error
            self._post(Result(call.job, None, error))
        call.deadline = monotonic_s() + RAISE_AGAIN_S
        if call.thread_id:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(call.thread_id), ctypes.py_object(type(error)))


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
