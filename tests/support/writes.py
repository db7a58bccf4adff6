"""The steps of an exactly-once write of the sink, without Spark."""

from __future__ import annotations

from collections.abc import Sequence

from spark_bull.core.dialects.encode.chunks import ChunkBuilder
from spark_bull.core.dialects.encode.codec import encode, rows_of
from spark_bull.core.model.jobs import NewJob
from spark_bull.core.queue.dispatch.registration import register
from spark_bull.core.queue.dispatch.write_records import Identity, QueuePlan, StagedChunk, StagedPart, stage_chunks
from spark_bull.core.queue.handle.handle import QueueHandle

DAY_MS = 86_400_000


def stage(handle: QueueHandle, attempt: str, jobs: Sequence[NewJob], chunk_size: int = 500) -> StagedPart:
    """Stages jobs as one task attempt does."""
    builder = ChunkBuilder(chunk_size, 1 << 20)
    columns = encode(handle.dialect, rows_of(jobs), {}, range(len(jobs)))
    chunks = [*builder.add(columns), *builder.flush()]
    key = handle.keys.stage(attempt)
    stage_chunks(handle.connection, [StagedChunk(key, n, packed) for n, (_, packed) in enumerate(chunks)], DAY_MS)
    return StagedPart(key, len(chunks), len(jobs))


def stage_all(
    handle: QueueHandle,
    write_id: str,
    partitions: Sequence[Sequence[NewJob]],
    chunk_size: int = 500,
    *,
    replace: bool = False,
    **fields: str | int,
) -> QueuePlan:
    """Stages the partitions as the tasks of a write do.

    `replace`: the write replaces the queue. fields: further ones of the write's hash.
    """
    parts = [stage(handle, f"{write_id}.{n}.0", jobs, chunk_size) for n, jobs in enumerate(partitions)]
    return QueuePlan(handle, [part for part in parts if part.chunks], fields | ({"replace": 1} if replace else {}))


def register_all(
    handle: QueueHandle,
    write_id: str,
    partitions: Sequence[Sequence[NewJob]],
    chunk_size: int = 500,
    identity: Identity | None = None,
    *,
    replace: bool = False,
    **fields: str | int,
) -> bool:
    """Stages and registers a write, which can then be rolled forward."""
    plan = stage_all(handle, write_id, partitions, chunk_size, replace=replace, **fields)
    return register(write_id, [plan], identity)
