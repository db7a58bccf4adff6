"""One task attempt of a write: rows -> chunks -> stage, or straight into the queue."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext

from spark_bull.dialects.codec import ChunkBuilder, defaults_of, encode
from spark_bull.errors import OptionError, SparkBullError
from spark_bull.queue.add import add_chunk
from spark_bull.queue.handle import QueueHandle
from spark_bull.queue.writes import Identity, is_written, stage_chunk
from spark_bull.spark.dispatch.plan import Part, Plan, Written
from spark_bull.spark.dispatch.rows import QUEUE
from spark_bull.store.connection import Connection
from spark_bull.store.settings import settings_of

#: Payload gathered for chunks that aren't full yet, over all queues of a task.
_MAX_GATHERED_BYTES: Final = 32 << 20


def write_task(plan: Plan, batches: Iterator[pa.RecordBatch], identity: Identity | None) -> Written:
    """Stages or adds the rows of one task attempt."""
    context = TaskContext.get()
    partition = context.partitionId() if context else 0
    attempt = f"{plan.write_id}.{partition}.{context.taskAttemptId() if context else 0}"
    started_on = Connection(settings_of(plan.options)).now_ms()
    if plan.replayed or (plan.handle is not None and _is_known(plan, plan.handle, identity)):
        for _ in batches:
            pass
        return Written(plan.write_id, (), started_on, identity)
    task = _Task(plan, attempt, identity)
    try:
        for batch in batches:
            task.take(batch)
        return Written(plan.write_id, task.finish(), started_on, identity)
    except SparkBullError as error:
        raise type(error)(f"partition {partition}, {error}") from error


def _is_known(plan: Plan, handle: QueueHandle, identity: Identity | None) -> bool:
    """Whether another run of this write has reached the queue before."""
    # An overwrite at least once has removed what the other run has added.
    replaced = plan.replaces and not plan.exactly_once
    return identity is not None and not replaced and is_written(handle, identity)


@dataclass
class _QueueShare:
    """What a task has for one queue: rows that fill a chunk, and what went out. `known`: nothing is to go out."""

    handle: QueueHandle
    builder: ChunkBuilder
    stage: str
    known: bool
    chunks: int = 0
    rows: int = 0
    added: int = 0
    duplicates: int = 0


@dataclass
class _Task:
    """Cuts a task's rows into chunks and sends them."""

    plan: Plan
    attempt: str
    identity: Identity | None
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
        if sum(share.builder.gathered for share in self.shares.values()) > _MAX_GATHERED_BYTES:
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
        if share.known:
            return
        columns = encode(share.handle.dialect, rows, self.defaults, numbers)
        for count, packed in share.builder.add(columns):
            self._send(share, count, packed)

    def _share(self, queue: str) -> _QueueShare:
        if queue not in self.shares:
            handle = self.plan.handle_of(queue)
            options = self.plan.options
            builder = ChunkBuilder(options["chunkSize"], options["chunkBytes"])
            # Exactly once, the commit looks at all queues of the write together.
            known = not self.plan.exactly_once and _is_known(self.plan, handle, self.identity)
            self.shares[queue] = _QueueShare(handle, builder, handle.keys.stage(self.attempt), known)
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
