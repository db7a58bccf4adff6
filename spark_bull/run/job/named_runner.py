"""Divides a chunk of jobs by name among runners, and runs functions of a chunk at the same time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from queue import Empty, SimpleQueue
from typing import Final

from spark_bull.core.queue.handle.report import lock_lost
from spark_bull.run.job.job_runner import ANY_NAME, FunctionRunner, Result, Runner
from spark_bull.run.job.job_threads import JobTasks, JobThreads, is_coroutine_function
from spark_bull.run.job.running_job import RunningJob

#: Interval at which it looks whether all jobs that run have lost their locks, s.
_LOOK_S: Final = 0.5


class ConcurrentRunner(Runner):
    """Calls functions of jobs, `concurrency` at a time; yields what has ended. The slots of a worker may share it."""

    one_by_one = False
    may_end_process = True

    def __init__(self, functions: FunctionRunner, concurrency: int) -> None:
        self._functions = functions
        self._concurrency = concurrency
        self._chunks: set[_Chunk] = set()

    def __call__(self, jobs: Sequence[RunningJob], lost: Collection[str]) -> Iterator[Sequence[Result]]:
        chunk = _Chunk(self._functions)
        self._chunks.add(chunk)
        try:
            waiting = iter(jobs)
            is_over = False
            while not is_over:
                while len(chunk.running) < self._concurrency and (job := next(waiting, None)) is not None:
                    chunk.start(job, lost)
                is_over = not chunk.running
                yield chunk.ended(lost)
        finally:
            self._chunks.discard(chunk)
            chunk.close()

    def interrupt(self, job: RunningJob) -> None:
        for chunk in list(self._chunks):
            if job in chunk.running and job.cancellation is not None:
                chunk.cancel(job, job.cancellation)


class _Chunk:
    """The functions that run for the jobs of a chunk."""

    def __init__(self, functions: FunctionRunner) -> None:
        self._functions = functions
        self._results: SimpleQueue[Result | None] = SimpleQueue()
        self._threads = JobThreads(self._results.put)
        self._tasks: JobTasks | None = None
        self.running: set[RunningJob] = set()

    def start(self, job: RunningJob, lost: Collection[str]) -> None:
        """Calls the function of a job, unless it is lost or cancelled."""
        if job.cancellation is not None:
            self._results.put(Result(job, None, job.cancellation))
            return
        try:
            function = self._functions.function_for(job)
        except BaseException as error:
            self._results.put(Result(job, None, error))
            return
        limit_ms = self._functions.begin(job)
        if job.id in lost:
            # After begin(): when the process is to end, another thread returns jobs that have not begun.
            return
        self.running.add(job)
        if is_coroutine_function(function):
            self._tasks = self._tasks or JobTasks(self._results.put)
            self._tasks.start(job, function, limit_ms)
        else:
            self._threads.start(job, function, limit_ms)

    def ended(self, lost: Collection[str]) -> list[Result]:
        """The results that there are; waits for the first one while functions run. Jobs that are lost are cancelled."""
        found: list[Result] = []
        while True:
            try:
                result = self._results.get(bool(self.running) and not found, _LOOK_S)
            except Empty:
                if found or not self.running:
                    return found
                for job in [job for job in self.running if job.id in lost]:
                    self.cancel(job, lock_lost(job.handle, job.id))
                continue
            if result is not None:
                self.running.discard(result.job)
                found.append(result)

    def cancel(self, job: RunningJob, error: BaseException) -> None:
        """Ends the function of a job; `error` becomes its result."""
        self._threads.cancel(job, error)
        if self._tasks is not None:
            self._tasks.cancel(job, error)

    def close(self) -> None:
        """Ends the threads and the event loop."""
        self._threads.close()
        if self._tasks is not None:
            self._tasks.close()


@dataclass(frozen=True)
class NamedRunner(Runner):
    """The jobs of each name run together, those with functions last.

    functions: by the names of their jobs. batches: the runners of the other names; one of both may have "*".
    concurrency: how many functions run at the same time. in_main_thread: whether the slot runs in a main thread, where
    a function can be interrupted.
    """

    functions: FunctionRunner
    batches: Mapping[str, Runner]
    concurrency: int = 1
    in_main_thread: bool = True

    one_by_one = False

    @property
    def may_end_process(self) -> bool:
        return bool(self.functions.functions) or any(runner.may_end_process for runner in self.batches.values())

    def divided(self, jobs: Sequence[RunningJob]) -> Iterable[tuple[Runner, Sequence[RunningJob]]]:
        parts: dict[int, tuple[Runner, list[RunningJob]]] = {}
        for job in jobs:
            runner = self._runner_of(job)
            parts.setdefault(id(runner), (runner, []))[1].append(job)
        of_functions = parts.pop(id(self._functions), None)
        return [*parts.values(), *([] if of_functions is None else [of_functions])]

    def __call__(self, jobs: Sequence[RunningJob], lost: Collection[str]) -> Iterator[Sequence[Result]]:
        for runner, part in self.divided(jobs):
            yield from runner(part, lost)

    def interrupt(self, job: RunningJob) -> None:
        self._runner_of(job).interrupt(job)

    def _runner_of(self, job: RunningJob) -> Runner:
        name = job.name or ""
        if name in self.functions.functions:
            return self._functions
        return self.batches.get(name) or self.batches.get(ANY_NAME) or self._functions

    @cached_property
    def _functions(self) -> Runner:
        """Runs the functions in this thread, if it can, and if they run one after the other."""
        has_coroutines = any(map(is_coroutine_function, self.functions.functions.values()))
        if self.in_main_thread and self.concurrency == 1 and not has_coroutines:
            return self.functions
        return ConcurrentRunner(self.functions, self.concurrency)
