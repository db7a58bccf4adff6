"""A task attempt of a write: cuts rows into chunks, and stages them or adds them directly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from spark_bull.core.dialects.encode.chunks import ChunkBuilder
from spark_bull.core.dialects.encode.codec import defaults_of, encode
from spark_bull.core.dialects.encode.flows import Flows
from spark_bull.core.dialects.encode.own_ids import with_own_ids
from spark_bull.core.dialects.priorities import PRIORITY
from spark_bull.core.dialects.terms import SPREAD_SEED
from spark_bull.core.model.jobs import Added
from spark_bull.core.queue.dispatch.add import add_chunk
from spark_bull.core.queue.dispatch.callbacks import Callback, open_callback
from spark_bull.core.queue.dispatch.flows import FlowChunk, add_flow_chunk, check_flows, flow_chunks
from spark_bull.core.queue.dispatch.graph import DEPENDS_ON
from spark_bull.core.queue.dispatch.kept import kept
from spark_bull.core.queue.dispatch.parents import check_parents
from spark_bull.core.queue.dispatch.verbs import FlowsReply
from spark_bull.core.queue.dispatch.writes import Identity
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.handle.length_limit import length_limit_of
from spark_bull.spark.dispatch.children_column import levels_of
from spark_bull.spark.dispatch.depends_on import held
from spark_bull.spark.dispatch.priority_queues import are_named, by_priority
from spark_bull.spark.dispatch.rows import CHILDREN, SEQUENCE
from spark_bull.spark.dispatch.sequence import in_sequences
from spark_bull.spark.dispatch.shards import ShardRouter, check_encoded
from spark_bull.spark.dispatch.write_plan import WritePlan
from spark_bull.spark.platform.lazy_arrow import pa
from spark_bull.spark.staging.messages import CommitMessage, TaskPart
from spark_bull.spark.staging.queue_rows import QUEUE, QueueRows, by_queue
from spark_bull.spark.staging.task import Attempt, Outbox, run_task

#: Maximum payload of incomplete chunks, over all queues of a task.
_MAX_GATHERED_BYTES: Final = 32 << 20


def write_task(plan: WritePlan, batches: Iterator[pa.RecordBatch]) -> CommitMessage:
    """Stages or adds the rows of a task attempt."""
    return run_task(plan, batches, _Task)


@dataclass
class _QueueWriter:
    """Rows of a task for one queue. was_committed: the queue has these rows, nothing is sent."""

    handle: QueueHandle
    builder: ChunkBuilder
    part: TaskPart
    was_committed: bool


@dataclass
class _Task:
    """Cuts a task's rows into chunks and sends them."""

    plan: WritePlan
    attempt: Attempt
    identity: Identity | None
    outbox: Outbox
    writers: dict[str, _QueueWriter] = field(default_factory=dict)
    handles: dict[str, QueueHandle] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.defaults = defaults_of(self.plan.options) | {SPREAD_SEED: self.attempt.partition}
        layout = self.plan.layout
        self.router = None if layout is None else ShardRouter(layout, self.attempt.partition)
        self.limit = length_limit_of(self.plan.options)
        #: The write that keeps the ids of the jobs that this task adds.
        self.keeper = self.plan.write_id if self.plan.options["keepIds"] else None
        self.callback: Callback | None = None
        self.opened = False
        #: Names the rows of this task, if they are added again when it is repeated.
        self.source: str | None = None
        if not self.plan.exactly_once:
            self.source = f"{self.identity or self.plan.write_id}:{self.attempt.partition}"
        on_finish = self.plan.on_finish
        if on_finish is not None:
            self.callback = on_finish.callback(self.plan.write_id, self.identity)
            self.defaults |= on_finish.children_defaults(self.callback)

    def take(self, batch: pa.RecordBatch, numbers: range) -> None:
        for part in self.plan.rows.slices(batch):
            own, numbers = numbers[: part.num_rows], numbers[part.num_rows :]
            rows = self.plan.rows.rows(part, own)
            self._open(rows.get(QUEUE, ()) if self.router is None else self.router.layout.names)
            for queue, queue_rows, theirs in self._placed(by_queue(rows, self.plan.options[QUEUE], own)):
                if self.plan.children is None:
                    self._take(queue, queue_rows, theirs)
                else:
                    children = part.column(self.plan.rows.columns[CHILDREN])
                    positions = pa.array([number - own[0] for number in theirs], pa.int64())
                    self._take_flows(queue, queue_rows, children.take(positions), theirs)
        if sum(writer.builder.gathered for writer in self.writers.values()) > _MAX_GATHERED_BYTES:
            self._flush()

    def _placed(self, parts: Iterator[QueueRows]) -> Iterator[QueueRows]:
        """Splits rows by shard, and those with priorities by name, if their dialect has a queue for each."""
        for queue, rows, numbers in parts:
            if self.router is not None:
                yield from self.router.split(rows, numbers)
            elif are_named(rows, self.defaults) and self._handle(queue).dialect.has("priority-queues"):
                yield from by_priority(queue, rows, self.defaults.get(PRIORITY), numbers)
            else:
                yield queue, rows, numbers

    def _open(self, queues: Iterable[str]) -> None:
        """Opens the queues that are new, in shared round trips."""
        new = [queue for queue in dict.fromkeys(queues) if queue and queue not in self.handles]
        if new:
            self.handles |= self.plan.handles_of(new)

    def _handle(self, queue: str) -> QueueHandle:
        self._open([queue])
        return self.handles[queue]

    def _take(self, queue: str, rows: dict[str, list[Any]], numbers: Sequence[int]) -> None:
        writer = self._writer(queue)
        if writer.was_committed:
            return
        sequences, depends_on = rows.pop(SEQUENCE, None), rows.pop(DEPENDS_ON, None)
        columns = encode(writer.handle.dialect, rows, self.defaults, numbers)
        if self.router is not None:
            check_encoded(columns, self.plan.rows, numbers)
        if self.plan.on_finish is not None and self.callback is not None:
            self.plan.on_finish.check_children(columns, self.callback, numbers)
            columns = replace(columns, parent_optional=True)
        elif columns.parent_id is not None and not self.plan.has_written(writer.handle, self.identity):
            check_parents(writer.handle, columns, numbers)
        if columns.parent_id is not None and self.source is not None:
            columns = with_own_ids(columns, rows, queue, numbers, self.source)
        if sequences is not None:
            columns = in_sequences(columns, sequences, self.plan.options["onFailure"], numbers)
        if depends_on is not None:
            columns = held(columns, depends_on, writer.part, numbers)
        for count, packed in writer.builder.add(kept(writer.handle, columns, self.attempt.name, numbers)):
            self._send(writer, count, packed)

    def _take_flows(self, queue: str, rows: dict[str, list[Any]], children: pa.Array, numbers: Sequence[int]) -> None:
        writer, plan, options = self._writer(queue), self.plan, self.plan.options
        if writer.was_committed or plan.children is None:
            return
        levels = levels_of(plan.children, rows, queue, children, numbers)
        flows = Flows(writer.handle.dialect, levels, self.defaults, numbers, self.source)
        if plan.on_finish is not None and self.callback is not None:
            plan.on_finish.check_children(flows.groups[0].jobs, self.callback, numbers)
            flows.make_parents_optional()
        elif not plan.has_written(writer.handle, self.identity):
            check_flows(writer.handle, flows)
        for chunk in flow_chunks(writer.handle, flows, options["chunkSize"], options["chunkBytes"], self.attempt.name):
            writer.part.flow_queues.update(chunk.queues)
            self._send(writer, chunk.jobs, chunk.packed, chunk)

    def _writer(self, queue: str) -> _QueueWriter:
        if queue not in self.writers:
            handle = self._handle(queue)
            options = self.plan.options
            if self.plan.rows.sequence_by:
                handle.dialect.require("flows", "`sequenceBy`")
            if self.plan.on_finish is not None:
                self.plan.on_finish.check_queue(handle)
            builder = ChunkBuilder(options["chunkSize"], options["chunkBytes"])
            # With exactly-once delivery, the commit checks all queues together.
            was_committed = not self.plan.exactly_once and self.plan.has_written(handle, self.identity)
            part = self.attempt.part_of(handle)
            if not self.plan.exactly_once:
                part.stage = ""
            self.writers[queue] = _QueueWriter(handle, builder, part, was_committed)
        return self.writers[queue]

    def _send(self, writer: _QueueWriter, rows: int, packed: bytes, flows: FlowChunk | None = None) -> None:
        part = writer.part
        if part.stage:
            self.outbox.add(part, rows, packed)
            return
        if self.callback is not None and not self.opened:
            # Before the first child is visible.
            open_callback(writer.handle, self.callback)
            self.opened = True
        sent: Added | FlowsReply
        if flows is None:
            sent = add_chunk(
                writer.handle,
                self.attempt.name,
                part.chunks,
                rows,
                packed,
                want_ids=False,
                limit=self.limit,
                write_id=self.keeper,
            )
        else:
            sent = add_flow_chunk(writer.handle, self.attempt.name, part.chunks, flows, self.keeper)
        part.added += sent.added
        part.duplicates += sent.duplicates
        part.deduplicated += sent.deduplicated
        part.rejected += len(sent.rejected)
        part.dropped += sent.dropped
        part.chunks += 1
        part.rows += rows

    def _flush(self) -> None:
        for writer in self.writers.values():
            for rows, packed in writer.builder.flush():
                self._send(writer, rows, packed)

    def finish(self) -> tuple[TaskPart, ...]:
        self._flush()
        return tuple(writer.part for writer in self.writers.values() if writer.part.chunks)
