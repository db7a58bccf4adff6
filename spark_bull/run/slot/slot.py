"""Runs one slot of a worker."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from spark_bull.core.tracing.tracer import spans_of
from spark_bull.run.job.job_runner import FunctionRunner
from spark_bull.run.job.job_tasks import is_coroutine_function
from spark_bull.run.job.traced import traced
from spark_bull.run.slot.chunk_loop import ChunkLoop
from spark_bull.run.slot.concurrent_loop import ConcurrentLoop
from spark_bull.run.slot.slot_loop import SlotLoop
from spark_bull.run.slot.slot_plan import SlotPlan
from spark_bull.run.slot.slot_stats import SlotStats


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
        worker = {"bullmq.worker.id": plan.worker, "bullmq.worker.name": plan.queues[0].claim_settings.worker}
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
