"""The chunks that a task is about to stage: several of them share a round trip."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from spark_bull.core.queue.dispatch.writes import StagedChunk, stage_chunks
from spark_bull.core.store.connection import Connection
from spark_bull.spark.staging.messages import TaskPart

#: Bytes of gathered chunks from which on they are staged: those of eight usual ones.
_GATHERED_BYTES: Final = 1 << 19


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
