"""Tasks of a write stage several chunks in one round trip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from spark_bull.queue.bull_queue import BullQueue
from spark_bull.queue.dispatch.writes import StagedChunk, stage_chunks
from spark_bull.spark.staging import outbox
from tests.support.sink import Sink


def test_the_chunks_of_a_task_are_staged_together_and_added_in_the_order_of_its_rows(
    redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trips = []

    def note(connection: Any, chunks: Sequence[StagedChunk], ttl_ms: int) -> None:
        trips.append([chunk.number for chunk in chunks])
        stage_chunks(connection, chunks, ttl_ms)

    monkeypatch.setattr(outbox, "stage_chunks", note)
    options = {"url": redis_url, "prefix": prefix, "queue": "q", "protocol": "bullmq", "chunkSize": "4"}
    sink = Sink(options, StructType([StructField("data", StringType())]))
    sink.task([{"data": str(n)} for n in range(50)])
    assert trips == [[*range(13)]]
    sink.commit()
    with BullQueue("q", url=redis_url, prefix=prefix) as queue:
        assert [job.data for job in queue.page("wait")] == [*range(50)]
