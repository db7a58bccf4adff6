"""Runs functions of jobs in threads, several at a time."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from threading import Condition, Lock, get_ident

from spark_bull.core.clock import monotonic_s
from spark_bull.core.threads import DaemonThread
from spark_bull.run.job.alarm import RAISE_AGAIN_S, timeout_error
from spark_bull.run.job.forks import in_this_process
from spark_bull.run.job.job_runner import JobExpired, JobFunction, Result
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
