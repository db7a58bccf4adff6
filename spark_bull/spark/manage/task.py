"""A task attempt of a write that changes jobs: checks its rows and stages them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from spark_bull.errors import OptionError, SparkBullError
from spark_bull.queue.changes import change_chunks
from spark_bull.queue.handle import QueueHandle
from spark_bull.queue.writes import Identity, is_written, stage_chunk
from spark_bull.spark.dispatch.plan import TaskPart, Written
from spark_bull.spark.dispatch.rows import QUEUE
from spark_bull.spark.manage.plan import ManagePlan
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
    context = TaskContext.get()
    partition = context.partitionId() if context else 0
    attempt = f"{plan.write_id}.{partition}.{context.taskAttemptId() if context else 0}"
    started_on = Connection(settings_of(plan.options)).now_ms()
    if plan.replayed or (identity and plan.handle is not None and is_written(plan.handle, identity)):
        for _ in batches:
            pass
        return Written(plan.write_id, (), started_on, identity)
    stages: dict[str, _Stage] = {}
    seen = 0
    try:
        for batch in batches:
            rows = plan.rows.rows(batch, range(seen, seen + batch.num_rows))
            for queue, queue_rows, numbers in _by_queue(plan, rows, seen, batch.num_rows):
                _stage(plan, attempt, stages, queue, queue_rows, numbers)
            seen += batch.num_rows
    except SparkBullError as error:
        raise type(error)(f"partition {partition}, {error}") from error
    parts = (
        TaskPart(queue, one.handle.dialect.name, one.key, one.chunks, one.rows, flow_queues=tuple(sorted(one.queues)))
        for queue, one in stages.items()
    )
    return Written(plan.write_id, tuple(parts), started_on, identity)


def _by_queue(
    plan: ManagePlan, rows: dict[str, list[Any]], first: int, count: int
) -> Iterator[tuple[str, dict[str, list[Any]], Sequence[int]]]:
    numbers = range(first, first + count)
    queues = rows.pop(QUEUE, None)
    if queues is None:
        yield plan.options["queue"], rows, numbers
        return
    members: dict[str, list[int]] = defaultdict(list)
    for position, queue in enumerate(queues):
        if not queue:
            raise OptionError(f"row {numbers[position]}: expected `queue` to name a queue, got {queue!r}")
        members[queue].append(position)
    for queue, positions in members.items():
        queue_rows = {name: [column[i] for i in positions] for name, column in rows.items()}
        yield queue, queue_rows, [numbers[i] for i in positions]


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
