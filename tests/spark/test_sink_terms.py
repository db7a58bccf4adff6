"""The terms of a write of Spark: maximum length of the queue, and a closed intake."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from spark_bull.queue.bull_queue import BullQueue
from tests.spark.conftest import Bull
from tests.support.wait import PATIENCE_S, wait_until

each_delivery = pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])


@pytest.fixture
def queue(bull: Bull) -> BullQueue:
    return BullQueue("q", url=bull.options["url"], prefix=bull.options["prefix"], protocol="bullmq")


def frame_of(bull: Bull, jobs: int) -> DataFrame:
    return bull.spark.range(0, jobs, 1, 2).selectExpr("named_struct('n', id) AS data")


def test_a_write_for_which_a_queue_has_no_room_adds_nothing(bull: Bull, queue: BullQueue) -> None:
    with pytest.raises(PySparkException, match="QueueFull: expected room for 30 jobs in queue q"):
        bull.write(frame_of(bull, 30), maxLength=20, chunkSize=5)
    assert queue.writes() == []
    assert queue.counts()["wait"] == 0
    assert list(queue.handle.connection.call("KEYS", f"{queue.handle.keys.base}spark:*")) == []
    bull.write(frame_of(bull, 20), maxLength=20, chunkSize=5)
    assert queue.counts()["wait"] == 20


def test_tasks_that_add_jobs_directly_fail_when_the_queue_is_full(bull: Bull, queue: BullQueue) -> None:
    with pytest.raises(PySparkException, match=r"QueueFull: partition \d, expected room for \d+ jobs in queue q"):
        bull.write(frame_of(bull, 30), maxLength=20, chunkSize=5, delivery="at-least-once")
    assert queue.counts()["wait"] <= 20


@each_delivery
def test_dropped_jobs_are_counted_in_the_record_of_the_write(bull: Bull, queue: BullQueue, delivery: str) -> None:
    bull.write(frame_of(bull, 30), maxLength=20, whenFull="drop", chunkSize=4, delivery=delivery)
    assert queue.counts()["wait"] == 20
    (row,) = bull.read(view="writes").collect()
    assert (row.state, row.jobs, row.added, row.dropped) == ("finished", 30, 20, 10)


@each_delivery
def test_a_write_goes_on_when_there_is_room(bull: Bull, queue: BullQueue, delivery: str) -> None:
    def process() -> list[int]:
        """Removes the jobs as workers do, from when the queue is full, until all have come."""
        wait_until(lambda: queue.counts()["wait"] == 10, "the queue to be full")
        started: list[int] = []

        def have_all_come() -> bool:
            waiting = queue.page("wait")
            assert len(waiting) <= 10
            for job in waiting:
                queue.remove(job.id)
                started.append(job.data["n"])
            return len(started) == 35

        wait_until(have_all_come, "all jobs")
        return started

    with ThreadPoolExecutor(1) as pool:
        worker = pool.submit(process)
        bull.write(frame_of(bull, 35), maxLength=10, whenFull="wait", chunkSize=4, delivery=delivery)
        assert sorted(worker.result(PATIENCE_S)) == list(range(35))
    (record,) = queue.writes()
    assert (record.state, record.added, record.dropped) == ("finished", 35, 0)


def test_a_stream_goes_on_when_the_queue_has_room(bull: Bull, queue: BullQueue, tmp_path: Path) -> None:
    source = bull.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20).load()
    stream = (
        source.selectExpr("named_struct('n', value) AS data")
        .writeStream.format("bull")
        .options(**bull.options, queue="q", maxLength="10", whenFull="wait", checkpointLocation=str(tmp_path))
        .start()
    )
    seen: set[int] = set()
    try:

        def enough() -> bool:
            for job in queue.page("wait"):
                assert job.data["n"] not in seen
                seen.add(job.data["n"])
                queue.remove(job.id)
            return len(seen) >= 60

        wait_until(enough, "three batches")
    finally:
        stream.stop()
    assert set(range(60)) <= seen


def test_a_closed_queue_refuses_writes_before_any_task(bull: Bull, queue: BullQueue) -> None:
    queue.close_intake()
    broken = bull.spark.range(1).selectExpr("CAST(raise_error('a task ran') AS STRING) AS data")
    with pytest.raises(PySparkException, match="IntakeClosed: queue q accepts no jobs until"):
        bull.write(broken)
    rows = frame_of(bull, 3).selectExpr("data", "'q' AS queue")
    for delivery in ("exactly-once", "at-least-once"):
        with pytest.raises(PySparkException, match="IntakeClosed"):
            bull.write(rows, queue=None, delivery=delivery, protocol="bullmq")
    assert queue.counts()["wait"] == 0
    queue.open_intake()
    bull.write(rows, queue=None, protocol="bullmq")
    assert queue.counts()["wait"] == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"whenFull": "wait"}, "expected `maxLength` with `whenFull`, got none"),
        ({"maxLength": 5, "onFinish": "{}"}, "expected one of `maxLength` and `onFinish`, got both"),
        ({"maxLength": -1}, "expected `maxLength` to be a positive integer, got: '-1'"),
        ({"maxLength": 5, "whenFull": "block"}, "expected `whenFull` to be one of fail, wait, drop, got: 'block'"),
    ],
    ids=repr,
)
def test_wrong_terms_are_refused(bull: Bull, options: dict[str, Any], message: str) -> None:
    with pytest.raises(PySparkException, match=message):
        bull.write(frame_of(bull, 1), **options)


def test_flows_have_no_maximum_length(bull: Bull) -> None:
    flows = bull.spark.sql("SELECT '{}' AS data, array(named_struct('data', '{}')) AS children")
    with pytest.raises(PySparkException, match="expected no `maxLength` with a column `children`, got both"):
        bull.write(flows, maxLength=5, protocol="bullmq")
