"""The plan of a write that adds jobs, made on the driver for its tasks and its commit.

A task attempt cuts rows into chunks, and stages them or adds them directly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Final

from spark_bull.core.dialects.base import Dialect
from spark_bull.core.dialects.encode.chunks import ChunkBuilder
from spark_bull.core.dialects.encode.codec import check_defaults, defaults_of, encode
from spark_bull.core.dialects.terms import AT_LEAST_ONCE, SPREAD_SEED
from spark_bull.core.errors import DialectError, OptionError
from spark_bull.core.model.jobs import Added
from spark_bull.core.options.parts import ALL_EVENTS
from spark_bull.core.options.table import WriteOptions
from spark_bull.core.queue.dispatch.add import add_chunk
from spark_bull.core.queue.dispatch.flows import FlowChunk, FlowsReply, add_flow_chunk, flow_chunks
from spark_bull.core.queue.dispatch.write_records import Fields, Identity
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.shards.layout import of_dialect
from spark_bull.spark.dispatch.feature import AddTerms, TaskRows, TaskWrite, WholeWrite, WriteFeature
from spark_bull.spark.dispatch.features.flows import Children
from spark_bull.spark.dispatch.features.routing import Shards, named_default
from spark_bull.spark.dispatch.rows import CHILDREN, RowPlan
from spark_bull.spark.platform.lazy_arrow import pa
from spark_bull.spark.staging.columns import QUEUE, QueueRows, by_queue, errors_of_row
from spark_bull.spark.staging.plan import CommitMessage, StagedPlan, TaskPart
from spark_bull.spark.staging.sink import Attempt, Outbox, run_task

#: What tasks count that add jobs directly.
_COUNTS = ("added", "duplicates", "deduplicated", "rejected", "dropped")


@dataclass(frozen=True, kw_only=True)
class WritePlan(StagedPlan[RowPlan]):
    """features: the features that the write has, in their order; `shards` is one of them. replaces: whether the write
    replaces the queue, mode("overwrite").
    """

    options: WriteOptions
    features: tuple[WriteFeature, ...]
    shards: Shards | None = None
    replaces: bool = False

    @property
    def exactly_once(self) -> bool:
        return self.options.delivery != AT_LEAST_ONCE

    def opened(self) -> WritePlan:
        if self.shards is None:
            return super().opened()
        plan = replace(self, options=of_dialect(self.options, self.shards.layout))
        self.shards.recover(plan)
        return plan.for_queue(self.shards.first)

    def check_dialect(self, dialect: Dialect) -> None:
        self.rows.check_dialect(dialect)
        check_defaults(dialect, named_default(dialect, defaults_of(self.options)))

    def check_queue(self, handle: QueueHandle) -> None:
        super().check_queue(handle)
        for feature in self.features:
            feature.check(handle)

    @property
    def planned_queues(self) -> list[str]:
        # A write that replaces the queue empties each shard.
        return self.shards.layout.all_names if self.shards and self.replaces else super().planned_queues

    @property
    def idle_queues(self) -> list[str]:
        return self.shards.layout.names if self.shards else super().idle_queues

    def has_written(self, handle: QueueHandle, identity: Identity | None) -> bool:
        # An overwrite with at-least-once delivery has removed the jobs of the earlier run.
        replaced = self.replaces and not self.exactly_once
        return not replaced and super().has_written(handle, identity)

    def common_fields(self, written: Sequence[CommitMessage], queues: Sequence[str]) -> Fields:
        write = WholeWrite(self, self.write_id_in(written), self.identity_in(written), queues)
        fields: dict[str, str | int] = {}
        for feature in self.features:
            fields |= feature.record(write)
        if self.options.events != ALL_EVENTS:
            fields["events"] = self.options.events
        if self.replaces and self.exactly_once:
            fields["replace"] = 1
        return fields

    def fields(self, handle: QueueHandle, parts: Sequence[TaskPart]) -> Fields:
        jobs = sum(part.rows for part in parts)
        fields: dict[str, str | int] = {"jobs": jobs}
        for feature in self.features:
            fields |= feature.queue_record(self, handle, parts)
        if not self.exactly_once:
            counts = {name: sum(getattr(part, name) for part in parts) for name in _COUNTS}
            fields |= {"delivery": AT_LEAST_ONCE, "position": jobs, **counts}
        return fields


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


class _Task:
    """Cuts a task's rows into chunks and sends them."""

    def __init__(self, plan: WritePlan, attempt: Attempt, identity: Identity | None, outbox: Outbox) -> None:
        self.plan = plan
        self.outbox = outbox
        self.writers: dict[str, _QueueWriter] = {}
        self.write = TaskWrite(plan, attempt, identity, defaults_of(plan.options) | {SPREAD_SEED: attempt.partition})
        for feature in plan.features:
            self.write.defaults |= feature.defaults(self.write)
        self.routers = [router for one in plan.features if (router := one.router(self.write)) is not None]
        self.children = next((one for one in plan.features if isinstance(one, Children)), None)

    def take(self, batch: pa.RecordBatch, numbers: range) -> None:
        for part in self.plan.rows.slices(batch):
            own, numbers = numbers[: part.num_rows], numbers[part.num_rows :]
            rows = self.plan.rows.rows(part, own)
            self._open(rows.get(QUEUE, ()), own)
            routed: Iterator[QueueRows] = by_queue(rows, self.plan.options.queue, own)
            for router in self.routers:
                routed = chain.from_iterable(router(*queue_rows) for queue_rows in routed)
            parts = [*routed]
            self.write.open(queue for queue, _, _ in parts)
            for queue, values, theirs in parts:
                writer = self._writer(queue)
                if writer.was_committed:
                    continue
                taken = TaskRows(self.write, writer.handle, writer.part, values, theirs)
                if self.children is None:
                    self._take(writer, taken)
                else:
                    positions = pa.array([number - own[0] for number in theirs], pa.int64())
                    children = part.column(self.plan.rows.columns[CHILDREN]).take(positions)
                    self._take_flows(writer, taken, self.children, children)
        if sum(writer.builder.gathered for writer in self.writers.values()) > _MAX_GATHERED_BYTES:
            self._flush()

    def _open(self, queues: Sequence[str], numbers: Sequence[int]) -> None:
        """Opens the queues that rows name, in shared round trips."""
        try:
            self.write.open(queues)
        except (DialectError, OptionError):
            for queue, number in zip(queues, numbers, strict=True):
                with errors_of_row(number):
                    self.write.open([queue])
            raise

    def _take(self, writer: _QueueWriter, rows: TaskRows) -> None:
        jobs = encode(writer.handle.dialect, rows.values, self.write.defaults, rows.numbers)
        for feature in self.plan.features:
            jobs = feature.encode(jobs, rows)
        for count, packed in writer.builder.add(jobs):
            self._send(writer, count, packed)

    def _take_flows(self, writer: _QueueWriter, rows: TaskRows, feature: Children, children: pa.Array) -> None:
        handle, options = writer.handle, self.plan.options
        flows = feature.flows(rows, children)
        for one in self.plan.features:
            one.check_flows(flows, rows)
        size, length = options.chunk_size, options.chunk_bytes
        for chunk in flow_chunks(handle, flows, size, length, self.write.attempt.name):
            writer.part.flow_queues.update(chunk.queues)
            self._send(writer, chunk.jobs, chunk.packed, chunk)

    def _writer(self, queue: str) -> _QueueWriter:
        if queue not in self.writers:
            handle, options = self.write.handle(queue), self.plan.options
            builder = ChunkBuilder(options.chunk_size, options.chunk_bytes)
            # With exactly-once delivery, the commit checks all queues together.
            was_committed = not self.plan.exactly_once and self.write.has_written(handle)
            part = self.write.attempt.part_of(handle)
            if not self.plan.exactly_once:
                part.stage = ""
            self.writers[queue] = _QueueWriter(handle, builder, part, was_committed)
        return self.writers[queue]

    def _send(self, writer: _QueueWriter, rows: int, packed: bytes, flows: FlowChunk | None = None) -> None:
        part = writer.part
        if part.stage:
            self.outbox.add(part, rows, packed)
            return
        sender, terms = self.write.attempt.name, self._terms
        sent: Added | FlowsReply
        if flows is None:
            sent = add_chunk(writer.handle, sender, part.chunks, rows, packed, want_ids=False, **terms)
        else:
            sent = add_flow_chunk(writer.handle, sender, part.chunks, flows, terms.get("write_id"))
        part.added += sent.added
        part.duplicates += sent.duplicates
        part.deduplicated += sent.deduplicated
        part.rejected += len(sent.rejected)
        part.dropped += sent.dropped
        part.chunks += 1
        part.rows += rows

    @cached_property
    def _terms(self) -> AddTerms:
        """The terms of chunks that are added directly; called before the first one."""
        terms: AddTerms = {}
        for feature in self.plan.features:
            terms |= feature.adding(self.write)
        return terms

    def _flush(self) -> None:
        for writer in self.writers.values():
            for rows, packed in writer.builder.flush():
                self._send(writer, rows, packed)

    def finish(self) -> tuple[TaskPart, ...]:
        self._flush()
        return tuple(writer.part for writer in self.writers.values() if writer.part.chunks)
