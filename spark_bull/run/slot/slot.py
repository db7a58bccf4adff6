"""Runs one slot of a worker, with spans: one per call of a function of a job, one per batch of other runners."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from spark_bull.core.errors import POSTPONING
from spark_bull.core.model.job_json import parsed_opts
from spark_bull.core.tracing.tracer import spans_of
from spark_bull.run.job.job_runner import FunctionRunner, JobFunction, Result, Runner
from spark_bull.run.job.job_threads import is_coroutine_function
from spark_bull.run.job.named_runner import NamedRunner
from spark_bull.run.job.outcomes import outcome_of
from spark_bull.run.job.running_job import RunningJob
from spark_bull.run.slot.chunk_loop import ChunkLoop
from spark_bull.run.slot.concurrent_loop import ConcurrentLoop
from spark_bull.run.slot.slot_loop import SlotLoop
from spark_bull.run.slot.slot_plan import SlotPlan
from spark_bull.run.slot.slot_report import SlotStats

if TYPE_CHECKING:
    from spark_bull.core.tracing.otel import Spans


def traced(runner: Runner, spans: Spans, worker: Mapping[str, str]) -> Runner:
    """Returns a runner that does the same in spans. worker: attributes of the worker."""
    if isinstance(runner, NamedRunner):
        # Names that share a runner must do so again.
        batches = {id(one): _TracedBatches(one, spans, worker) for one in runner.batches.values()}
        named = {name: batches[id(one)] for name, one in runner.batches.items()}
        return replace(runner, functions=_traced_functions(runner.functions, spans, worker), batches=named)
    if isinstance(runner, FunctionRunner):
        return _traced_functions(runner, spans, worker)
    return _TracedBatches(runner, spans, worker)


@dataclass(frozen=True)
class _TracedBatches(Runner):
    """Runs each batch in a span with links to those that added its jobs, as it belongs to the traces of all of them."""

    runner: Runner
    spans: Spans
    worker: Mapping[str, str]

    one_by_one = False

    @property
    def may_end_process(self) -> bool:
        return self.runner.may_end_process

    def __call__(self, jobs: Sequence[RunningJob], lost: Collection[str]) -> Iterator[Sequence[Result]]:
        if not jobs:
            return
        linked = [
            (carried_in(job.claimed.opts), {"bullmq.job.id": job.id, "bullmq.job.name": job.name}) for job in jobs
        ]
        failed = 0
        with self.spans.processing_batch(jobs[0].queue, linked, self.worker) as span:
            for results in self.runner(jobs, lost):
                for job, _, error in results:
                    if error is not None and outcome_of(error).error is not None:
                        span.failed_job(job.id, error)
                        failed += 1
                yield results
            span.failed_of(len(jobs), failed)

    def interrupt(self, job: RunningJob) -> None:
        self.runner.interrupt(job)


def _traced_functions(runner: FunctionRunner, spans: Spans, worker: Mapping[str, str]) -> FunctionRunner:
    functions = {name: _traced(function, spans, worker) for name, function in runner.functions.items()}
    return replace(runner, processor=functions)


def _traced(function: JobFunction, spans: Spans, worker: Mapping[str, str]) -> JobFunction:
    in_span = partial(_attempt, spans, worker)

    def call(job: RunningJob) -> Any:
        with in_span(job):
            return function(job)

    async def call_coroutine(job: RunningJob) -> Any:
        with in_span(job):
            return await function(job)

    return call_coroutine if is_coroutine_function(function) else call


def carried_in(opts: str) -> object:
    """The trace context that a job with these options, JSON text, carries."""
    return (parsed_opts(opts) or {}).get("tm")


@contextmanager
def _attempt(spans: Spans, worker: Mapping[str, str], job: RunningJob) -> Iterator[None]:
    """The span of one attempt. It has failed, unless the job is to run again without having lost an attempt."""
    attributes = {**worker, "bullmq.job.id": job.id, "bullmq.job.name": job.name}
    with spans.processing(job.queue, carried_in(job.claimed.opts), attributes) as span:
        if job.handle.dialect.has("telemetry"):
            job.trace(span.carried)
        try:
            yield
        except POSTPONING:
            raise
        except BaseException as error:
            span.failed(error, job.attempts_made + 1)
            raise
        span.completed(job.attempts_made + 1)


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets these variables in this block. Spark may use the process for other tasks afterwards."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def run_slot(plan: SlotPlan, slot: int) -> SlotStats:
    """Runs a slot until it is to stop."""
    with environment(plan.env):
        return loop_of(plan, slot).run()


def loop_of(plan: SlotPlan, slot: int, *, in_main_thread: bool = True) -> SlotLoop:
    """Returns the loop for a plan: coroutine functions, and a concurrency above 1, need the concurrent one.

    in_main_thread: whether it will run there, where functions can be interrupted; else they have threads of their own.
    """
    spans = spans_of(plan.tracer)
    if spans is not None:
        worker = {"bullmq.worker.id": plan.worker, "bullmq.worker.name": plan.queues[0].work_settings.worker}
        plan = replace(plan, runner=traced(plan.runner, spans, worker))
    loop: SlotLoop
    runner = plan.runner
    if isinstance(runner, FunctionRunner) and (
        not in_main_thread or plan.concurrency > 1 or any(map(is_coroutine_function, runner.functions.values()))
    ):
        loop = ConcurrentLoop(plan, slot, runner)
    else:
        loop = ChunkLoop(plan, slot)
    loop.spans = spans
    return loop
