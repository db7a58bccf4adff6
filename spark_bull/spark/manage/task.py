"""A task attempt of a write that changes jobs: checks its rows and stages them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from spark_bull.errors import SparkBullError, restated
from spark_bull.queue.changes import change_chunks
from spark_bull.queue.handle import QueueHandle
from spark_bull.queue.writes import Identity, stage_chunk
from spark_bull.spark.manage.plan import ManagePlan
from spark_bull.spark.staging.attempt import this_attempt
from spark_bull.spark.staging.messages import TaskPart, Written
from spark_bull.spark.staging.queue_rows import QUEUE, by_queue
from spark_bull.store.connection import Connection
from spark_bull.store.settings import settings_of


@dataclass
class _Stage:
    """What a task stages for one queue."""

    handle: QueueHandle
    key: str
    chunks: int = 0
    rows: int = 0
    queues: set[str] = field(default_factory=set)


def stage_task(plan: ManagePlan, batches: Iterator[pa.RecordBatch], identity: Identity | None) -> Written:
    """Stages the rows of a task attempt."""
    attempt = this_attempt(plan.write_id)
    started_on = Connection(settings_of(plan.options)).now_ms()
    if plan.was_committed(identity):
        for _ in batches:
            pass
        return Written(plan.write_id, (), started_on, identity)
    stages: dict[str, _Stage] = {}
    seen = 0
    try:
        for batch in batches:
            numbers = range(seen, seen + batch.num_rows)
            for queue, rows, own in by_queue(plan.rows.rows(batch, numbers), plan.options[QUEUE], numbers):
                _stage(plan, attempt.name, stages, queue, rows, own)
            seen += batch.num_rows
    except SparkBullError as error:
        raise restated(error, f"partition {attempt.partition}, {error}") from error
    parts = (
        TaskPart(queue, one.handle.dialect.name, one.key, one.chunks, one.rows, flow_queues=tuple(sorted(one.queues)))
        for queue, one in stages.items()
    )
    return Written(plan.write_id, tuple(parts), started_on, identity)


def _stage(
    plan: ManagePlan,
    attempt: str,
    stages: dict[str, _Stage],
    queue: str,
    rows: dict[str, list[Any]],
    numbers: Sequence[int],
) -> None:
    if queue not in stages:
        handle = plan.handle_of(queue)
        stages[queue] = _Stage(handle, handle.keys.stage(attempt))
    one, options = stages[queue], plan.options
    for chunk in change_chunks(one.handle, rows, numbers, options["chunkSize"], options["chunkBytes"]):
        stage_chunk(one.handle, one.key, one.chunks, chunk.packed, options["stageTtlMs"])
        one.chunks += 1
        one.rows += chunk.rows
        one.queues.update(chunk.queues)
