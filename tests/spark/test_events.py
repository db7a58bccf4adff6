"""view=events in Spark, as a batch and as a stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_bull import BullQueue
from spark_bull.spark.platform.requirements import start_query
from spark_bull.spark.schemas import SCHEMAS
from tests.spark.conftest import Bull


def test_events_are_rows_of_a_batch_and_each_is_once_in_a_stream_that_is_started_again(
    queue: BullQueue, spark: SparkSession, bull: Bull, tmp_path: Path
) -> None:
    for n in range(2):
        queue.publish("tick", {"n": n, "jobId": str(n)})
    kept = bull.read(view="events", schema="timestamp TIMESTAMP, jobId STRING, fields MAP<STRING,STRING>").collect()
    assert [(row.jobId, row.fields) for row in kept] == [("0", {"n": "0"}), ("1", {"n": "1"})]

    def collect() -> list[str]:
        stream = spark.readStream.format("bull").options(**bull.options, queue="q", view="events").load()
        assert stream.schema == SCHEMAS["events"]
        writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "check"))
        query: Any = start_query(lambda: writer.trigger(availableNow=True).start(str(tmp_path / "events")))
        query.awaitTermination()
        found = spark.read.parquet(str(tmp_path / "events")).collect()
        return sorted(row.fields["n"] for row in found)

    assert collect() == ["0", "1"]
    queue.publish("tick", {"n": 2})
    assert collect() == ["0", "1", "2"]


def test_a_queue_without_kept_events_is_refused_with_what_to_use(bull: Bull) -> None:
    with pytest.raises(
        PySparkException, match=r"bull publishes events on channels, and keeps none; .*BullQueue.events"
    ):
        bull.read(view="events", protocol="bull").collect()
