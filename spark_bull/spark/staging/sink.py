"""The writers that Spark gets: it calls `write` in tasks, `commit` and `abort` on the driver.

`write` stages chunks that workers do not see. A failed, speculative or zombie attempt has its own stage keys, which are
not committed. `commit` registers the stages of the successful attempts; from then on any process can finish the write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, cast

from pyspark import TaskContext

from spark_bull.core.error_text import short_errors
from spark_bull.core.errors import OptionError, SparkBullError, restated
from spark_bull.core.queue.dispatch.write_records import Identity, StagedChunk, stage_chunks
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.store.connection import Connection
from spark_bull.spark.platform.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
    begin_task,
    refuse_created_table,
)
from spark_bull.spark.platform.lazy_arrow import pa
from spark_bull.spark.staging.plan import CommitMessage, StagedPlan, TaskPart

P = TypeVar("P")
W = TypeVar("W", bound=WriterCommitMessage)
Batches: TypeAlias = "Iterator[pa.RecordBatch]"
Messages: TypeAlias = list[WriterCommitMessage | None]


@dataclass(frozen=True)
class _Imported:
    """A function whose module is imported when it is called: Spark starts a process for each step, which needs one."""

    module: str
    name: str

    def __call__(self, *arguments: Any) -> Any:
        return getattr(import_module(self.module), self.name)(*arguments)


def _imported(function: Callable[..., Any]) -> _Imported:
    return _Imported(function.__module__, function.__name__)


def _no_discard(plan: object, messages: object) -> None:
    """A failed write leaves nothing."""


@short_errors
class Sink(DataSourceStreamArrowWriter, DataSourceArrowWriter, Generic[P, W]):
    """The writer of one `save()`, or of one micro-batch. Picklable.

    write, commit, discard: functions of modules. The last two get the messages of the tasks that were successful.
    """

    def __init__(
        self,
        plan: P,
        write: Callable[[P, Batches], W],
        commit: Callable[[P, list[W]], None],
        discard: Callable[[P, list[W]], object] = _no_discard,
    ) -> None:
        self.plan = plan
        self._write, self._commit, self._discard = _imported(write), _imported(commit), _imported(discard)

    def write(self, iterator: Batches) -> W:
        refuse_created_table()
        return cast("W", self._write(self.plan, iterator))

    def commit(self, messages: Messages, batchId: int | None = None) -> None:
        self._commit(self.plan, [one for one in messages if one is not None])

    def abort(self, messages: Messages, batchId: int | None = None) -> None:
        self._discard(self.plan, [one for one in messages if one is not None])


def refuse_overwrite(why: str, *, is_stream: bool) -> OptionError:
    """The error for mode("overwrite") or outputMode("complete")."""
    modes = 'outputMode("append"), got "complete"' if is_stream else 'mode("append"), got mode("overwrite")'
    return OptionError(f"{why}: expected {modes}")


S = TypeVar("S", bound=StagedPlan[Any])

#: Setting of a session: the id of its next write, for a program that looks for the record of the write.
WRITE_ID: Final = "spark.bull.writeId"

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
    """Returns query id and batch id, None outside of a streaming query."""
    context = TaskContext.get()
    if context is None:
        return None
    query = context.getLocalProperty("sql.streaming.queryId")
    batch = context.getLocalProperty("streaming.sql.batchId")
    return Identity(query, int(batch)) if query and batch else None


def _named(plan: S) -> S:
    """The plan, with the id that the program has chosen: Spark passes the settings of a session to tasks only."""
    context = TaskContext.get()
    write_id = context and context.getLocalProperty(WRITE_ID)
    return replace(plan, write_id=write_id) if write_id else plan


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
    plan: S, batches: Iterator[pa.RecordBatch], task_of: Callable[[S, Attempt, Identity | None, Outbox], Task]
) -> CommitMessage:
    """Runs an attempt; its rows are dropped if an earlier write of its identity was committed."""
    begin_task()
    plan = _named(plan)
    attempt, identity = this_attempt(plan.write_id), this_batch() if plan.is_stream else plan.identity
    if plan.is_stream and identity is None:
        raise SparkBullError(
            "expected Spark to tell tasks of a stream the ids of its query and batch, got none. A repeated batch would "
            "add its jobs again: write in foreachBatch, with `txnAppId` and `txnVersion`"
        )
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
