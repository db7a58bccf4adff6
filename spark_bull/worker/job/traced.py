"""Functions of jobs, each call in a span."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from spark_bull.errors import POSTPONING
from spark_bull.model.job_json import parsed_opts
from spark_bull.worker.job.job_runner import FunctionRunner, JobFunction
from spark_bull.worker.job.job_tasks import is_coroutine_function
from spark_bull.worker.job.running_job import RunningJob

if TYPE_CHECKING:
    from spark_bull.tracing.otel import Spans


def traced(runner: FunctionRunner, spans: Spans, worker: Mapping[str, str]) -> FunctionRunner:
    """Returns a runner whose functions run in spans. worker: attributes of the worker."""
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


@contextmanager
def _attempt(spans: Spans, worker: Mapping[str, str], job: RunningJob) -> Iterator[None]:
    """The span of one attempt. It has failed, unless the job is to run again without having lost an attempt."""
    carried = (parsed_opts(job.claimed.opts) or {}).get("tm")
    attributes = {**worker, "bullmq.job.id": job.id, "bullmq.job.name": job.name}
    with spans.processing(job.queue, carried, attributes) as span:
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
