"""The attempt of a task of a write, and the micro-batch that it belongs to: Spark tells both to tasks only."""

from __future__ import annotations

from typing import NamedTuple

from pyspark import TaskContext

from spark_bull.core.queue.dispatch.writes import Identity
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.spark.staging.messages import TaskPart


class Attempt(NamedTuple):
    """name: unique for each attempt of each task of all writes; the keys of its stages contain it."""

    partition: int
    name: str

    def part_of(self, handle: QueueHandle) -> TaskPart:
        """What the attempt stages for a queue: nothing yet."""
        return TaskPart(queue=handle.keys.queue, dialect=handle.dialect.name, stage=handle.keys.stage(self.name))


def this_attempt(write_id: str) -> Attempt:
    """Returns the attempt that this process runs."""
    context = TaskContext.get()
    partition = context.partitionId() if context else 0
    return Attempt(partition, f"{write_id}.{partition}.{context.taskAttemptId() if context else 0}")


def this_batch() -> Identity | None:
    """Returns query id and batch id."""
    context = TaskContext.get()
    if context is None:
        return None
    query = context.getLocalProperty("sql.streaming.queryId")
    batch = context.getLocalProperty("streaming.sql.batchId")
    return Identity(query, int(batch)) if query and batch else None
