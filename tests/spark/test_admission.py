"""Micro-batches that wait for enough rows, and have up to a number of bytes, in a table of files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from redis import Redis

from spark_bull import BullQueue, NewJob
from spark_bull.spark.collect.events import event_reader
from spark_bull.spark.collect.stream import result_reader
from spark_bull.spark.platform.positioned_reader import PositionedReader
from spark_bull.spark.platform.requirements import start_query
from spark_bull.spark.schemas import CLAIM_SCHEMA, SCHEMAS
from spark_bull.spark.work.claim_stream import claim_reader
from tests.support.wait import PATIENCE_S, wait_until
from tests.support.work_bench import WorkBench, completed

pytestmark = pytest.mark.rest

passes_start = pytest.mark.capability("available-now")

#: In each row, with less than 200 bytes besides.
TEXT = "x" * 950


def finish(bench: WorkBench, count: int) -> None:
    bench.add(count)
    bench.work(completed(bench.claim(count), json.dumps(TEXT)))


def publish(bench: WorkBench, count: int) -> None:
    for n in range(count):
        bench.queue.publish("tick", {"n": n, "text": TEXT})


def wait_in_line(bench: WorkBench, count: int) -> None:
    bench.queue.add_many(NewJob({"n": n}) for n in range(count))


#: For each mode: its options, and the name of the least number, what makes rows, and the rows of an offset.
MODES: dict[str, tuple[dict[str, str], str, Callable[[WorkBench, int], None], Callable[[Any], int]]] = {
    "collect": ({}, "minJobsPerTrigger", finish, lambda offset: offset["queues"].get("q", 0)),
    "events": (
        {"view": "events"},
        "minEventsPerTrigger",
        publish,
        lambda offset: offset["queues"].get("q", ["", 0])[1],
    ),
    "claim": ({"mode": "claim"}, "minJobsPerTrigger", wait_in_line, lambda offset: offset["claimed"]),
}


class Table:
    """What a query of a mode writes: a folder of Parquet files."""

    def __init__(self, spark: SparkSession, options: dict[str, str], folder: Path) -> None:
        self._spark, self._options, self._folder = spark, options, folder

    def start(self, options: dict[str, str], **trigger: Any) -> Any:
        stream = self._spark.readStream.format("bull").options(**self._options, **options).load()
        writer = stream.writeStream.format("parquet").option("checkpointLocation", str(self._folder / "check"))
        return start_query(lambda: writer.trigger(**trigger).start(str(self._folder / "table")))

    def files(self) -> list[int]:
        """The numbers of rows of the files that have any: the first batch of Spark has none if it has to wait."""
        table = self._spark.read.parquet(str(self._folder / "table"))
        return [row["count"] for row in table.groupBy(f.input_file_name()).count().collect()]


@pytest.fixture
def bench(queue: BullQueue, client: Redis) -> WorkBench:
    return WorkBench(queue, client, twice=False)


@pytest.fixture
def table(spark: SparkSession, bench: WorkBench, redis_url: str, prefix: str, tmp_path: Path) -> Table:
    options = {"url": redis_url, "prefix": prefix, "queue": "q", "protocol": "bullmq"}
    return Table(spark, options, tmp_path)


@passes_start
@pytest.mark.parametrize("mode", MODES)
def test_rows_that_arrive_one_after_the_other_become_one_file(
    bench: WorkBench, table: Table, spark: SparkSession, mode: str
) -> None:
    given, least, add, position = MODES[mode]
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "100ms")
    add(bench, 10)
    query = table.start({**given, least: "30", "maxTriggerDelayMs": "3600000"}, processingTime="0 seconds")
    try:
        for rows in (10, 20):
            wait_until(lambda rows=rows: backlogs(query, position).count(rows) > 1, "the query to wait")
            assert table.files() == []
            add(bench, 10)
        assert wait_until(table.files, "the batch") == [30]
        add(bench, 10)
        wait_until(lambda: 10 in backlogs(query, position), "the query to wait")
    finally:
        spark.conf.unset("spark.sql.streaming.noDataProgressEventInterval")
        query.stop()
    query = table.start({**given, least: "30"}, availableNow=True)
    assert query.awaitTermination(PATIENCE_S)
    assert sorted(table.files()) == [10, 30]


def backlogs(query: Any, position: Callable[[Any], int]) -> list[int]:
    """The rows that were there and in no batch, by the progress of the query."""
    sources = [progress["sources"][0] for progress in query.recentProgress]
    return [
        position(json.loads(source["latestOffset"])) - position(json.loads(source["endOffset"]))
        for source in sources
        if source["latestOffset"] and source["endOffset"]
    ]


@passes_start
@pytest.mark.parametrize("mode", ["collect", "events"])
def test_batches_have_up_to_a_number_of_bytes_until_all_is_read(bench: WorkBench, table: Table, mode: str) -> None:
    given, _, add, _ = MODES[mode]
    add(bench, 10)
    query = table.start({**given, "maxBytesPerTrigger": "3500"}, availableNow=True)
    assert query.awaitTermination(PATIENCE_S)
    assert [batch["numInputRows"] for batch in query.recentProgress if batch["numInputRows"]] == [3, 3, 3, 1]


@pytest.mark.parametrize("mode", MODES)
def test_all_batches_but_the_first_wait_where_pyspark_passes_no_start(
    bench: WorkBench, redis_url: str, prefix: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query may end with the first batch, and nothing tells whether it does."""
    monkeypatch.setattr("spark_bull.spark.work.claim_stream.PASSES_START", False)
    given, least, add, position = MODES[mode]
    options = {"url": redis_url, "prefix": prefix, "queue": "q", "protocol": "bullmq", **given}
    options |= {least: "30", "maxTriggerDelayMs": "3600000"}
    opened: Any = {
        "collect": lambda: result_reader(options, SCHEMAS["jobs"]),
        "events": lambda: event_reader(options, SCHEMAS["events"]),
        "claim": lambda: claim_reader(options, CLAIM_SCHEMA),
    }[mode]()
    reader = PositionedReader(opened)
    end = reader.initialOffset()

    def rows() -> int:
        """The number of rows of the next batch, which is planned."""
        nonlocal end
        start, end = end, reader.latestOffset()
        read = [batch for part in reader.partitions(start, end) for batch in reader.read(part)] if start != end else []
        return sum(batch.num_rows for batch in read)

    add(bench, 10)
    assert rows() == 10
    add(bench, 20)
    assert [rows(), rows()] == [0, 0]
    add(bench, 10)
    assert rows() == 30
    assert position(end) == 40
    if mode == "collect":
        opened._collector(end["reader"]).close()
