"""Runs one slot of a worker."""

from __future__ import annotations

from spark_bull.worker.chunk_loop import ChunkLoop
from spark_bull.worker.concurrent_loop import ConcurrentLoop
from spark_bull.worker.job_runner import FunctionRunner
from spark_bull.worker.job_tasks import is_coroutine_function
from spark_bull.worker.slot_loop import SlotLoop
from spark_bull.worker.slot_plan import SlotPlan


def loop_of(plan: SlotPlan, slot: int) -> SlotLoop:
    """Returns the loop for a plan: coroutine functions, and a concurrency above 1, need the concurrent one."""
    runner = plan.runner
    if isinstance(runner, FunctionRunner):
        has_coroutines = any(is_coroutine_function(function) for function in runner.functions.values())
        if plan.concurrency > 1 or has_coroutines:
            return ConcurrentLoop(plan, slot, runner)
    return ChunkLoop(plan, slot)
