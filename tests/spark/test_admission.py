"""Micro-batches that wait for enough rows, in a table of files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as f
from redis import Redis

from spark_bull import BullQueue, NewJob
from tests.spark.conftest import Bull, collecting
from tests.support.wait import PATIENCE_S, wait_until
from tests.support.work_bench import Finisher

pytestmark = pytest.mark.rest


def publish(finisher: Finisher) -> None:
    for n in range(10):
        finisher.queue.publish("tick", {"n": n})


def wait_in_line(finisher: Finisher) -> None:
    finisher.queue.add_many(NewJob({"n": n}) for n in range(10))


#: For each mode: its options, and the name of the least number, what makes ten rows, and the rows of an offset.
MODES: dict[str, tuple[dict[str, str], str, Callable[[Finisher], object], Callable[[Any], int]]] = {
    "collect": ({}, "minJobsPerTrigger", lambda finisher: finisher.finish(10), lambda o: o["queues"].get("q", 0)),
    "events": ({"view": "events"}, "minEventsPerTrigger", publish, lambda o: o["queues"].get("q", ["", 0])[1]),
    "claim": ({"mode": "claim"}, "minJobsPerTrigger", wait_in_line, lambda o: o["claimed"]),
}


@pytest.mark.capability("available-now")
@pytest.mark.parametrize("mode", MODES)
def test_rows_that_arrive_one_after_the_other_become_one_file(
    bull: Bull, queue: BullQueue, client: Redis, tmp_path: Path, mode: str
) -> None:
    given, least, add_ten, position = MODES[mode]
    finisher = Finisher(queue, client, twice=False)

    def start(options: dict[str, str], **trigger: Any) -> Any:
        stream = bull.stream(**given, **options, **{least: "30"}, protocol="bullmq")
        return collecting(stream, tmp_path, **trigger)

    def files() -> list[int]:
        """The numbers of rows of the files that have any: the first batch of Spark has none if it has to wait."""
        table = bull.spark.read.parquet(str(tmp_path / "rows"))
        return sorted(row["count"] for row in table.groupBy(f.input_file_name()).count().collect())

    bull.spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "100ms")
    add_ten(finisher)
    query = start({"maxTriggerDelayMs": "3600000"}, processingTime="0 seconds")
    try:
        for rows in (10, 20):
            wait_until(lambda rows=rows: backlogs(query, position).count(rows) > 1, "the query to wait")
            assert files() == []
            add_ten(finisher)
        assert wait_until(files, "the batch") == [30]
        add_ten(finisher)
        wait_until(lambda: 10 in backlogs(query, position), "the query to wait")
    finally:
        bull.spark.conf.unset("spark.sql.streaming.noDataProgressEventInterval")
        query.stop()
    query = start({}, availableNow=True)
    assert query.awaitTermination(PATIENCE_S)
    assert files() == [10, 30]


def backlogs(query: Any, position: Callable[[Any], int]) -> list[int]:
    """The rows that were there and in no batch, by the progress of the query."""
    sources = [progress["sources"][0] for progress in query.recentProgress]
    return [
        position(json.loads(source["latestOffset"])) - position(json.loads(source["endOffset"]))
        for source in sources
        if source["latestOffset"] and source["endOffset"]
    ]
