"""A task attempt of a write that changes jobs: checks its rows and stages them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from spark_bull.errors import SparkBullError, restated
from spark_bull.queue.core.handle import QueueHandle
from spark_bull.queue.dispatch.writes import Identity, stage_chunk
from spark_bull.queue.manage.changes import change_chunks
from spark_bull.spark.manage.plan import ManagePlan
from spark_bull.spark.platform.lazy_arrow import pa
from spark_bull.spark.staging.attempt import this_attempt
from spark_bull.spark.staging.messages import TaskPart, Written
from spark_bull.spark.staging.queue_rows import QUEUE, by_queue
from spark_bull.store.connection import Connection
from spark_bull.store.settings import settings_of


def stage_task(plan: ManagePlan, batches: Iterator[pa.RecordBatch], identity: Identity | None) -> Written:
    """Stages the rows of a task attempt."""
    attempt = this_attempt(plan.write_id)
    started_on = Connection(settings_of(plan.options)).now_ms()
    if plan.was_committed(identity):
        for _ in batches:
            pass
        return Written(plan.write_id, (), started_on, identity)
    stages: dict[str, tuple[QueueHandle, TaskPart]] = {}
    seen = 0
    try:
        for batch in batches:
            numbers = range(seen, seen + batch.num_rows)
            for queue, rows, own in by_queue(plan.rows.rows(batch, numbers), plan.options[QUEUE], numbers):
                if queue not in stages:
                    handle = plan.handle_of(queue)
                    stages[queue] = handle, TaskPart(queue, handle.dialect.name, handle.keys.stage(attempt.name))
                _stage(plan, *stages[queue], rows, own)
            seen += batch.num_rows
    except SparkBullError as error:
        raise restated(error, f"partition {attempt.partition}, {error}") from error
    return Written(plan.write_id, tuple(part for _, part in stages.values()), started_on, identity)


def _stage(
    plan: ManagePlan, handle: QueueHandle, part: TaskPart, rows: dict[str, list[Any]], numbers: Sequence[int]
) -> None:
    options = plan.options
    for chunk in change_chunks(handle, rows, numbers, options["chunkSize"], options["chunkBytes"]):
        stage_chunk(handle, part.stage, part.chunks, chunk.packed, options["stageTtlMs"])
        part.chunks += 1
        part.rows += chunk.rows
        part.flow_queues.update(chunk.queues)
