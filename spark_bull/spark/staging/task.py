"""A task attempt of a write: which one it is, and the rows that it stages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from pyspark import TaskContext

from spark_bull.core.errors import SparkBullError, restated
from spark_bull.core.queue.dispatch.stages import Identity, StagedChunk, stage_chunks
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.store.connection import Connection
from spark_bull.spark.platform.lazy_arrow import pa
from spark_bull.spark.platform.python_worker import begin_task
from spark_bull.spark.staging.plan import CommitMessage, StagedPlan, TaskPart

P = TypeVar("P", bound=StagedPlan[Any])

#: Bytes of gathered chunks from which on they are staged: eight usual ones.
_GATHERED_BYTES: Final = 1 << 19


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


@dataclass
class Outbox:
    """Gathers the chunks of a task, also of several queues. Those that are left are staged by `flush`.

    ttl_ms: lifetime of the stage keys. Both methods raise the errors of `stage_chunks`.
    """

    connection: Connection
    ttl_ms: int
    _chunks: list[StagedChunk] = field(default_factory=list, init=False)
    _bytes: int = field(default=0, init=False)

    def add(self, part: TaskPart, rows: int, packed: bytes) -> None:
        """Adds the next chunk of a part."""
        self._chunks.append(StagedChunk(part.stage, part.chunks, packed))
        self._bytes += len(packed)
        part.chunks += 1
        part.rows += rows
        if self._bytes >= _GATHERED_BYTES:
            self.flush()

    def flush(self) -> None:
        """Stages all chunks that are left."""
        if self._chunks:
            stage_chunks(self.connection, self._chunks, self.ttl_ms)
            self._chunks, self._bytes = [], 0


class Task(Protocol):
    """Stages the rows of one attempt, or adds them."""

    def take(self, batch: pa.RecordBatch, numbers: range) -> None:
        """Takes the next rows. numbers: theirs, for errors."""

    def finish(self) -> tuple[TaskPart, ...]:
        """Ends the task; returns what it has written to each queue, or what the outbox is about to stage for it."""


def run_task(
    plan: P, batches: Iterator[pa.RecordBatch], task_of: Callable[[P, Attempt, Identity | None, Outbox], Task]
) -> CommitMessage:
    """Runs an attempt; its rows are dropped if an earlier write of its identity was committed."""
    begin_task()
    attempt, identity = this_attempt(plan.write_id), this_batch() if plan.is_stream else plan.identity
    connection = Connection(plan.options.redis)
    started_on, outbox = connection.now_ms(), Outbox(connection, plan.options.stage_ttl_ms)
    if plan.replayed or (plan.handle is not None and plan.has_written(plan.handle, identity)):
        for _ in batches:
            pass
        return CommitMessage(plan.write_id, (), started_on, identity)
    task, seen = task_of(plan, attempt, identity, outbox), 0
    try:
        for batch in batches:
            task.take(batch, range(seen, seen + batch.num_rows))
            seen += batch.num_rows
        parts = task.finish()
        outbox.flush()
        return CommitMessage(plan.write_id, parts, started_on, identity)
    except SparkBullError as error:
        raise restated(error, f"partition {attempt.partition}, {error}") from error
