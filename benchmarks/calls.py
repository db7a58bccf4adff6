"""An exactly-once write by one client, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from benchmarks.filling import payload
from spark_bull.core.dialects.encode.chunks import ChunkBuilder, PackedChunk
from spark_bull.core.dialects.encode.codec import encode
from spark_bull.core.options.parts import ALL_EVENTS
from spark_bull.core.queue.dispatch.registration import register
from spark_bull.core.queue.dispatch.roll_forward import roll_forward
from spark_bull.core.queue.dispatch.write_records import QueuePlan, StagedChunk, StagedPart, stage_chunks
from spark_bull.core.queue.handle.handle import QueueHandle

CHUNK, CHUNKS_PER_PART = 250, 100
#: Bytes of a payload.
PAYLOAD: Final = 200
CHUNK_BYTES: Final = 1 << 20
HOUR_MS: Final = 3_600_000
WRITE_ID = "calls"


def stage(handle: QueueHandle, jobs: int, size: int = PAYLOAD, events: str = ALL_EVENTS) -> None:
    """Stages and registers a write. events: those that it causes."""
    parts: list[StagedPart] = []
    for number, chunk in enumerate(chunks_of(handle, jobs, size)):
        if number % CHUNKS_PER_PART == 0:
            parts.append(StagedPart(handle.keys.stage(f"{WRITE_ID}.{len(parts)}"), 0, 0))
        stage_chunks(handle.connection, [StagedChunk(parts[-1].stage, parts[-1].chunks, chunk.packed)], HOUR_MS)
        parts[-1].chunks += 1
        parts[-1].rows += chunk.rows
    register(WRITE_ID, [QueuePlan(handle, parts, {"events": events})], None)


def add_staged(handle: QueueHandle, jobs: int) -> None:
    """Adds the staged jobs, as the driver does."""
    added = roll_forward(handle, WRITE_ID).added
    assert added == jobs, f"expected {jobs} jobs to be added, got {added}"


def chunks_of(handle: QueueHandle, jobs: int, size: int) -> Iterator[PackedChunk]:
    builder = ChunkBuilder(CHUNK, CHUNK_BYTES)
    for first in range(0, jobs, CHUNK):
        numbers = range(first, min(jobs, first + CHUNK))
        rows = {"data": [payload(number, size).text for number in numbers], "name": ["flight"] * len(numbers)}
        yield from builder.add(encode(handle.dialect, rows, {}, numbers))
    yield from builder.flush()
