"""The sink: rows become jobs, exactly once or chunk by chunk.

`writer()` runs on the driver before any task and checks everything. `write()` runs in a task and
stages chunks that no worker sees; a failed, speculative or zombie attempt has stage keys of its
own, which nobody commits. `commit()` runs on the driver, registers the winners and adds the jobs.
With `delivery=at-least-once`, `write()` adds each chunk itself.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from spark_bull.adding import add_chunk
from spark_bull.connection import Connection, settings_of
from spark_bull.dialects.codec import NAMES, ChunkBuilder, encode
from spark_bull.dialects.handle import QueueHandle, open_handle
from spark_bull.errors import DialectError, OptionError, SparkBullError
from spark_bull.management import check_obliterate, obliterate
from spark_bull.options import WRITE, Options, parse_options
from spark_bull.spark.rows import QUEUE, RowPlan, plan_rows
from spark_bull.staging import (
    Identity,
    QueuePlan,
    StagedPart,
    discard,
    is_written,
    recover,
    register,
    roll_forward,
    stage_chunk,
)

log = logging.getLogger("spark_bull")

#: Properties that an option of the same name gives to all rows.
_DEFAULTS: Final = tuple(name for name in NAMES if name not in ("data", "jobId"))
#: Payload gathered for chunks that aren't full yet, over all queues of a task.
_MOST_GATHERED_BYTES: Final = 32 << 20


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task tells the driver: what it staged or added, by queue."""

    write_id: str
    parts: tuple[Part, ...]
    identity: Identity | None = None


@dataclass(frozen=True)
class Part:
    """One task's share of one queue. `stage` is empty when the jobs were added at once."""

    queue: str
    dialect: str
    stage: str = ""
    chunks: int = 0
    rows: int = 0
    added: int = 0
    duplicates: int = 0


@dataclass(frozen=True)
class Plan:
    """Everything about one write that its tasks need; made on the driver, picklable."""

    options: Options
    rows: RowPlan
    write_id: str
    started_on: int
    handle: QueueHandle | None = None
    replayed: bool = False

    @property
    def exactly_once(self) -> bool:
        return bool(self.options["delivery"] == "exactly-once")

    def handle_of(self, queue: str, dialect: str | None = None) -> QueueHandle:
        """The handle of a queue that a row or a message names."""
        if self.handle is not None and self.handle.keys.queue == queue:
            return self.handle
        handle = open_handle(self.options, queue)
        if dialect is not None and handle.dialect.name != dialect:
            raise DialectError(
                f"queue {queue} spoke {dialect} when rows were written and now speaks "
                f"{handle.dialect.name}: give the option `protocol`"
            )
        return handle


def plan_write(raw: Mapping[str, str], schema: StructType) -> Plan:
    """Checks options, columns and Redis; finishes what an earlier write left open.

    Raises OptionError, DialectError or ConnectionLost before any task has started.
    """
    options = parse_options(raw, WRITE)
    rows = plan_rows(schema, options)
    connection = Connection(settings_of(options))
    queue = options["queue"]
    connection.check(options["prefix"], [queue] if queue else [], write=True)
    started_on, write_id = connection.now_ms(), uuid4().hex
    if queue is None:
        return Plan(options, rows, write_id, started_on)
    handle = open_handle(options, queue)
    encode(handle.dialect, {"data": ["{}"]}, defaults_of(options), [0])
    recover(handle)
    identity = _identity_of(options)
    replayed = identity is not None and is_written(handle, identity)
    return Plan(options, rows, write_id, started_on, handle, replayed)


def defaults_of(options: Options) -> dict[str, Any]:
    """What options say of all rows."""
    return {name: options[name] for name in _DEFAULTS if options[name] is not None}


def _identity_of(options: Options) -> Identity | None:
    if options["txnAppId"] is None:
        return None
    return Identity(options["txnAppId"], options["txnVersion"])


def batch_writer(raw: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """The writer of `df.write.format("bull")`; for errors see `plan_write`."""
    plan = plan_write(raw, schema)
    if overwrite:
        _allow_overwrite(plan)
    return BatchWriter(plan, overwrite)


def _allow_overwrite(plan: Plan) -> None:
    if not plan.options["confirmObliterate"]:
        raise OptionError(
            'mode("overwrite") deletes the queue with all its jobs: expected the option '
            '`confirmObliterate` to be true, got false; use mode("append") to add jobs'
        )
    if plan.handle is None:
        raise OptionError('mode("overwrite") expects the option `queue`, got a `queue` column')
    if not plan.replayed:
        check_obliterate(plan.handle)


def stream_writer(raw: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """The writer of `df.writeStream.format("bull")`; for errors see `plan_write`."""
    if overwrite:
        raise OptionError(
            'a stream in outputMode("complete") would replace the queue with every batch: use outputMode("append")'
        )
    plan = plan_write(raw, schema)
    if plan.options["txnAppId"] is not None:
        raise OptionError("`txnAppId` is for batch writes: a stream is known by its checkpoint; leave it out")
    return StreamWriter(plan)


class BatchWriter(DataSourceArrowWriter):
    """One `save()`."""

    def __init__(self, plan: Plan, overwrite: bool) -> None:
        self._plan = plan
        self._overwrite = overwrite

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write_task(self._plan, iterator, _identity_of(self._plan.options))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        written = _written(messages)
        if self._overwrite and self._plan.handle is not None and not self._plan.replayed:
            obliterate(self._plan.handle, force=True)
        commit_write(self._plan, written, _identity_of(self._plan.options))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        abort_write(self._plan, _written(messages))


class StreamWriter(DataSourceStreamArrowWriter):
    """One micro-batch; a query and its batch are recognised when they come again."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write_task(self._plan, iterator, _identity_of_batch())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        written = _written(messages)
        if any(message.parts for message in written):
            commit_write(self._plan, written, written[0].identity)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        abort_write(self._plan, _written(messages))


def _written(messages: Iterable[WriterCommitMessage | None]) -> list[Written]:
    return [message for message in messages if isinstance(message, Written)]


def _identity_of_batch() -> Identity | None:
    """Query and batch, which Spark tells its tasks only."""
    context = TaskContext.get()
    if context is None:
        return None
    query = context.getLocalProperty("sql.streaming.queryId")
    batch = context.getLocalProperty("streaming.sql.batchId")
    return Identity(query, int(batch)) if query and batch else None


def write_task(plan: Plan, batches: Iterator[pa.RecordBatch], identity: Identity | None) -> Written:
    """Stages or adds the rows of one task attempt."""
    context = TaskContext.get()
    partition = context.partitionId() if context else 0
    attempt = f"{plan.write_id}.{partition}.{context.taskAttemptId() if context else 0}"
    known = plan.handle is not None and identity is not None and is_written(plan.handle, identity)
    if plan.replayed or known:
        for _ in batches:
            pass
        return Written(plan.write_id, (), identity)
    task = _Task(plan, attempt)
    try:
        for batch in batches:
            task.take(batch)
        return Written(plan.write_id, task.finish(), identity)
    except SparkBullError as error:
        raise type(error)(f"partition {partition}, {error}") from error


@dataclass
class _QueueShare:
    """What a task has for one queue: rows that fill a chunk, and what went out."""

    handle: QueueHandle
    builder: ChunkBuilder
    stage: str
    chunks: int = 0
    rows: int = 0
    added: int = 0
    duplicates: int = 0


@dataclass
class _Task:
    """Cuts a task's rows into chunks and sends them."""

    plan: Plan
    attempt: str
    seen: int = 0
    shares: dict[str, _QueueShare] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.defaults = defaults_of(self.plan.options)

    def take(self, batch: pa.RecordBatch) -> None:
        for part in self.plan.rows.slices(batch):
            rows = self.plan.rows.rows(part, self.seen)
            for queue, chosen, numbers in self._by_queue(rows, part.num_rows):
                self._take(queue, chosen, numbers)
            self.seen += part.num_rows
        if sum(share.builder.gathered for share in self.shares.values()) > _MOST_GATHERED_BYTES:
            self._flush()

    def _by_queue(
        self, rows: dict[str, list[Any]], count: int
    ) -> Iterator[tuple[str, dict[str, list[Any]], Sequence[int]]]:
        numbers = range(self.seen, self.seen + count)
        queues = rows.pop(QUEUE, None)
        if queues is None:
            yield self.plan.options["queue"], rows, numbers
            return
        members: dict[str, list[int]] = defaultdict(list)
        for position, queue in enumerate(queues):
            if not queue:
                raise OptionError(f"row {numbers[position]}: expected `queue` to name a queue, got {queue!r}")
            members[queue].append(position)
        for queue, positions in members.items():
            chosen = {name: [column[i] for i in positions] for name, column in rows.items()}
            yield queue, chosen, [numbers[i] for i in positions]

    def _take(self, queue: str, rows: dict[str, list[Any]], numbers: Sequence[int]) -> None:
        share = self._share(queue)
        columns = encode(share.handle.dialect, rows, self.defaults, numbers)
        for count, packed in share.builder.add(columns):
            self._send(share, count, packed)

    def _share(self, queue: str) -> _QueueShare:
        if queue not in self.shares:
            handle = self.plan.handle_of(queue)
            options = self.plan.options
            builder = ChunkBuilder(options["chunkSize"], options["chunkBytes"])
            self.shares[queue] = _QueueShare(handle, builder, handle.keys.stage(self.attempt))
        return self.shares[queue]

    def _send(self, share: _QueueShare, rows: int, packed: bytes) -> None:
        if self.plan.exactly_once:
            ttl_ms = self.plan.options["stageTtlMs"]
            stage_chunk(share.handle, share.stage, share.chunks, packed, ttl_ms)
        else:
            sent = add_chunk(share.handle, self.attempt, share.chunks, rows, packed, want_ids=False)
            share.added += sent.added
            share.duplicates += sent.duplicates
        share.chunks += 1
        share.rows += rows

    def _flush(self) -> None:
        for share in self.shares.values():
            for count, packed in share.builder.flush():
                self._send(share, count, packed)

    def finish(self) -> tuple[Part, ...]:
        self._flush()
        return tuple(
            Part(
                queue,
                share.handle.dialect.name,
                share.stage if self.plan.exactly_once else "",
                share.chunks,
                share.rows,
                share.added,
                share.duplicates,
            )
            for queue, share in self.shares.items()
            if share.chunks
        )


def commit_write(plan: Plan, written: list[Written], identity: Identity | None) -> None:
    """Registers what the tasks staged, then adds the jobs, partition after partition."""
    plans = _queue_plans(plan, written)
    if plan.handle is None:
        for queue_plan in plans:
            recover(queue_plan.handle)
    write_id = written[0].write_id if written else plan.write_id
    if not register(write_id, plans, identity):
        log.info("write %s was done before (%s): nothing added", write_id, identity)
        return
    for queue_plan in plans:
        record = roll_forward(queue_plan.handle, write_id, _log_progress)
        log.info(
            "write %s: %d jobs added to queue %s, %d duplicates, %s ms",
            write_id,
            record.added,
            record.queue,
            record.duplicates,
            record.duration_ms,
        )


def _queue_plans(plan: Plan, written: list[Written]) -> list[QueuePlan]:
    by_queue: dict[str, list[Part]] = defaultdict(list)
    if plan.handle is not None:
        by_queue[plan.handle.keys.queue] = []
    for message in written:
        for part in message.parts:
            by_queue[part.queue].append(part)
    return [_queue_plan(plan, queue, parts) for queue, parts in by_queue.items()]


def _queue_plan(plan: Plan, queue: str, parts: list[Part]) -> QueuePlan:
    handle = plan.handle_of(queue, parts[0].dialect if parts else None)
    staged = [StagedPart(part.stage, part.chunks, part.rows) for part in parts if part.stage]
    fields: dict[str, str | int] = {
        "delivery": plan.options["delivery"],
        "startedOn": plan.started_on,
        "jobs": sum(part.rows for part in parts),
    }
    if not plan.exactly_once:
        fields["position"] = fields["jobs"]
        fields["added"] = sum(part.added for part in parts)
        fields["duplicates"] = sum(part.duplicates for part in parts)
    return QueuePlan(handle, staged, fields)


def _log_progress(done: int, total: int) -> None:
    log.debug("%d of %d jobs added", done, total)


def abort_write(plan: Plan, written: list[Written]) -> None:
    """Forgets what the tasks of a failed write staged; their TTL would do so anyway."""
    stages = [part.stage for message in written for part in message.parts if part.stage]
    try:
        discard(Connection(settings_of(plan.options)), stages)
    except SparkBullError as error:
        log.warning("staged chunks of a failed write stay until their TTL ends: %s", error)
