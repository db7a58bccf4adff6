"""Tasks of a write stage several chunks in one round trip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from spark_bull.queue.bull_queue import BullQueue
from spark_bull.store.connection import Command, Connection
from tests.support.sink import Sink


def test_the_chunks_of_a_task_are_staged_together_and_added_in_the_order_of_its_rows(
    redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trips, pipeline = list[int](), Connection.pipeline

    def note(self: Connection, commands: Sequence[Command], what: str = "") -> list[Any]:
        if "write/stage" in what:
            trips.append(len(commands))
        return pipeline(self, commands, what)

    monkeypatch.setattr(Connection, "pipeline", note)
    options = {"url": redis_url, "prefix": prefix, "queue": "q", "protocol": "bullmq", "chunkSize": "4"}
    sink = Sink(options, StructType([StructField("data", StringType())]))
    sink.task([{"data": str(n)} for n in range(50)])
    assert trips == [13]
    sink.commit()
    with BullQueue("q", url=redis_url, prefix=prefix) as queue:
        assert [job.data for job in queue.page("wait")] == [*range(50)]
