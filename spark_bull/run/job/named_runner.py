"""Divides a chunk of jobs by name among runners of several kinds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from spark_bull.run.job.concurrent_runner import ConcurrentRunner
from spark_bull.run.job.job_runner import ANY_NAME, FunctionRunner, Result, Runner
from spark_bull.run.job.job_tasks import is_coroutine_function
from spark_bull.run.job.running_job import RunningJob


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
