"""The sink of mode=manage: rows change existing jobs, exactly once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pyspark.sql.types import StructType

from spark_bull.core.options.parse import parse_options
from spark_bull.core.options.table import ManageOptions
from spark_bull.core.queue.dispatch.stages import Identity
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.manage.changes import change_chunks
from spark_bull.spark.manage.commit import commit_changes
from spark_bull.spark.manage.plan import ManagePlan, plan_rows
from spark_bull.spark.manage.result_file import check_path
from spark_bull.spark.platform.lazy_arrow import pa
from spark_bull.spark.staging.commit import discard_stages
from spark_bull.spark.staging.messages import CommitMessage, TaskPart
from spark_bull.spark.staging.queue_rows import by_queue
from spark_bull.spark.staging.sink import Sink, refuse_overwrite
from spark_bull.spark.staging.task import Attempt, Outbox, run_task


def stage_changes(plan: ManagePlan, batches: Iterator[pa.RecordBatch]) -> CommitMessage:
    """Stages the rows of a task attempt."""
    return run_task(plan, batches, _Task)


@dataclass
class _Task:
    plan: ManagePlan
    attempt: Attempt
    identity: Identity | None
    outbox: Outbox
    stages: dict[str, tuple[QueueHandle, TaskPart]] = field(default_factory=dict)

    def take(self, batch: pa.RecordBatch, numbers: range) -> None:
        options = self.plan.options
        for queue, rows, own in by_queue(self.plan.rows.rows(batch, numbers), options.queue, numbers):
            if queue not in self.stages:
                opened = self.plan.handle_of(queue)
                self.stages[queue] = opened, self.attempt.part_of(opened)
            handle, part = self.stages[queue]
            for chunk in change_chunks(handle, rows, own, options.chunk_size, options.chunk_bytes):
                self.outbox.add(part, chunk.rows, chunk.packed)
                part.flow_queues.update(chunk.queues)

    def finish(self) -> tuple[TaskPart, ...]:
        # A batch without rows has staged nothing.
        return tuple(part for _, part in self.stages.values() if part.chunks)


def manage_sink(
    raw: Mapping[str, str], schema: StructType, overwrite: bool, *, is_stream: bool
) -> Sink[ManagePlan, CommitMessage]:
    """Plans a write with mode=manage. Raises the errors of `StagedPlan.planned`."""
    if overwrite:
        raise refuse_overwrite("mode=manage changes existing jobs", is_stream=is_stream)
    options = parse_options(raw, ManageOptions)
    rows = plan_rows(schema, options)
    check_path(options.result_path)
    plan = ManagePlan.planned(options, rows, is_stream=is_stream)
    return Sink(plan, stage_changes, commit_changes, discard_stages)
