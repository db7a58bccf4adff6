"""Runs one slot of a worker."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from spark_bull.tracing.tracer import spans_of
from spark_bull.worker.job.job_runner import FunctionRunner
from spark_bull.worker.job.job_tasks import is_coroutine_function
from spark_bull.worker.job.named_runner import NamedRunner
from spark_bull.worker.job.traced import traced
from spark_bull.worker.slot.chunk_loop import ChunkLoop
from spark_bull.worker.slot.concurrent_loop import ConcurrentLoop
from spark_bull.worker.slot.environment import environment
from spark_bull.worker.slot.slot_loop import SlotLoop
from spark_bull.worker.slot.slot_plan import SlotPlan
from spark_bull.worker.slot.slot_stats import SlotStats

if TYPE_CHECKING:
    from spark_bull.tracing.otel import Spans


def run_slot(plan: SlotPlan, slot: int) -> SlotStats:
    """Runs a slot until it is to stop; exports its spans then."""
    with environment(plan.env):
        spans = spans_of(plan.tracer)
        try:
            return loop_of(plan, slot, spans).run()
        finally:
            if spans is not None:
                spans.flush()


def loop_of(plan: SlotPlan, slot: int, spans: Spans | None = None) -> SlotLoop:
    """Returns the loop for a plan: coroutine functions, and a concurrency above 1, need the concurrent one."""
    runner = plan.runner
    if spans is not None:
        worker = {"bullmq.worker.id": plan.worker, "bullmq.worker.name": plan.queues[0].claim_settings.worker}
        if isinstance(runner, FunctionRunner):
            runner = traced(runner, spans, worker)
        elif isinstance(runner, NamedRunner):
            runner = replace(runner, functions=traced(runner.functions, spans, worker))
        plan = replace(plan, runner=runner)
    loop: SlotLoop
    if isinstance(runner, FunctionRunner) and (
        plan.concurrency > 1 or any(map(is_coroutine_function, runner.functions.values()))
    ):
        loop = ConcurrentLoop(plan, slot, runner)
    else:
        loop = ChunkLoop(plan, slot)
    if spans is not None:
        loop.flush = spans.flush
    return loop
