"""Several chunks are staged in one round trip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest

from spark_bull.core.options.redis_settings import RedisSettings
from spark_bull.core.queue.dispatch.write_records import StagedChunk
from spark_bull.core.store.connection import Connection
from spark_bull.spark.staging import sink as outbox_module
from spark_bull.spark.staging.plan import TaskPart
from spark_bull.spark.staging.sink import Outbox

TTL_MS: Final = 1_000


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[StagedChunk]]:
    """The chunks that are staged together, instead of which none is sent."""
    trips: list[Sequence[StagedChunk]] = []

    def note(connection: Connection, chunks: Sequence[StagedChunk], ttl_ms: int) -> None:
        assert ttl_ms == TTL_MS
        trips.append(chunks)

    monkeypatch.setattr(outbox_module, "stage_chunks", note)
    monkeypatch.setattr(outbox_module, "_GATHERED_BYTES", 10)
    return trips


@pytest.fixture
def outbox() -> Outbox:
    return Outbox(Connection(RedisSettings("redis://nowhere")), TTL_MS)


def part(name: str) -> TaskPart:
    return TaskPart(queue=name, dialect="bullmq", stage=f"stage:{name}")


def test_chunks_are_staged_together_in_the_order_of_their_numbers(
    outbox: Outbox, trips: list[Sequence[StagedChunk]]
) -> None:
    a, b = part("a"), part("b")
    for one, rows, packed in ((a, 2, b"12345"), (b, 1, b"1"), (a, 3, b"1234"), (a, 4, b"5")):
        outbox.add(one, rows, packed)
    assert trips == [[("stage:a", 0, b"12345"), ("stage:b", 0, b"1"), ("stage:a", 1, b"1234")]]
    outbox.flush()
    assert trips[1:] == [[("stage:a", 2, b"5")]]
    assert [(one.chunks, one.rows) for one in (a, b)] == [(3, 9), (1, 1)]


def test_an_empty_outbox_sends_nothing(outbox: Outbox, trips: list[Sequence[StagedChunk]]) -> None:
    outbox.flush()
    outbox.add(part("a"), 1, b"1234567890")
    outbox.flush()
    assert len(trips) == 1
