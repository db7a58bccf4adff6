"""The plan of the slots of a worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from spark_bull.core.errors import OptionError
from spark_bull.core.model.limits import ClaimSettings, default_worker
from spark_bull.core.options.table import WorkOptions
from spark_bull.core.queue.handle.handle import QueueHandle, keys_of
from spark_bull.run.job.job_options import keep_rule
from spark_bull.run.job.job_runner import Runner
from spark_bull.run.job.outcome_policy import OutcomePolicy
from spark_bull.run.slot.slot_plan import SlotPlan, SlotQueuePlan, start_limit
from spark_bull.run.worker.worker_options import Processing
from spark_bull.run.worker.worker_queues import OpenedQueue

#: Default size of the chunks of functions. A script for more jobs blocks Redis for longer.
FUNCTION_CHUNK: Final = 100


def check_dead_letter_queue(handle: QueueHandle, queue: str) -> None:
    """Raises OptionError or DialectError if the queue cannot take the failed jobs of the queue of `handle`."""
    if keys_of(handle, queue, "`dead_letter_queue`") == handle.keys:
        raise OptionError(
            f"expected `dead_letter_queue` to be another queue than {queue}, which the worker processes: a copy that "
            "fails would be copied again"
        )


def plan_slots(
    worker: str,
    queues: Sequence[OpenedQueue],
    options: WorkOptions,
    processing: Processing,
    runner: Runner,
    chunk_size: int,
) -> SlotPlan:
    """Returns the plan of the slots of a worker. runner, chunk_size: of its processors."""

    def queue_plan(queue: OpenedQueue) -> SlotQueuePlan:
        handle = queue.handle
        if options.dead_letter_queue is not None:
            check_dead_letter_queue(handle, options.dead_letter_queue)
        settings = ClaimSettings(
            sender=worker,
            lock_ms=options.lock_ms,
            worker=options.worker_name or default_worker(worker),
            limiter=options.limiter,
            group=options.group,
            max_metrics=options.metrics_minutes,
            control=handle.keys.control(worker),
            counters=handle.keys.counters(worker),
        )
        return SlotQueuePlan(handle, settings, queue.weight, start_limit(handle, options.max_started))

    keep = keep_rule(options.remove_on_complete), keep_rule(options.remove_on_fail)
    return SlotPlan(
        tuple(map(queue_plan, queues)),
        worker,
        runner,
        chunk_size,
        OutcomePolicy(*keep, processing.backoff_strategy, options.retry or {}, options.dead_letter_queue),
        options.concurrency,
        min_chunk=options.min_chunk,
        chunk_wait_ms=options.chunk_wait_ms,
        tracer=processing.tracer,
        meter=processing.meter,
        setup=processing.setup,
        env=processing.env,
        max_stalled=options.max_stalled,
    )
