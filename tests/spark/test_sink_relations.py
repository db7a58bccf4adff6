"""Writes of flows, of sequences and with a callback, and writes to queues with a maximum length or a closed intake."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from redis import Redis

from spark_bull.core.queue.bull_queue import BullQueue
from tests.spark.conftest import Bull, Files, OpenQueue, refusal
from tests.support.job_order import orders
from tests.support.wait import wait_until
from tests.support.worker import OurWorker

#: A job of queue q with three children in queue pages, each of which has one in queue words.
FLOW = [
    "concat('b', n) AS jobId",
    "named_struct('book', n) AS data",
    "transform(sequence(1, 3), i -> named_struct('queue', 'pages', 'data', named_struct('page', i), 'children',"
    " array(named_struct('queue', 'words', 'data', to_json(named_struct('n', i)))))) AS children",
]


def frame_of(bull: Bull, jobs: int) -> DataFrame:
    return bull.spark.range(0, jobs, 1, 2).selectExpr("id AS n")


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_each_micro_batch_adds_its_flows_and_a_callback_once_also_if_it_is_repeated(
    files: Files, open_queue: OpenQueue, delivery: str
) -> None:
    options = {"onFinish": '{"queue": "report"}', "delivery": delivery}
    files.write_with_a_repetition(10, lambda: files.rows().repartition(2).selectExpr(*FLOW), **options)
    for name, counts in {
        "q": {"waiting-children": 30},
        "pages": {"waiting-children": 90},
        "words": {"wait": 90},
        "report": {"waiting-children": 3},
    }.items():
        assert {state: jobs for state, jobs in open_queue(name).counts().items() if jobs} == counts
    report = open_queue("report")
    callbacks = report.page("waiting-children")
    assert [report.dependency_counts(job.id)["unprocessed"] for job in callbacks] == [10] * 3


def test_the_jobs_of_a_key_run_in_the_order_of_the_rows_over_writes(
    bull: Bull, queue: BullQueue, client: Redis
) -> None:
    """Also if the rows of a key are in several partitions; the key may be a column beside `data`."""
    with OurWorker(queue.handle, lambda job: None, concurrency=4):
        for first, column in ((0, "n"), (100, "named_struct('n', n, 'customer', customer) AS data")):
            frame = bull.spark.range(first, first + 100, 1, 4).selectExpr("id AS n", "id % 7 AS customer").orderBy("n")
            bull.write(frame.selectExpr(column, "customer"), sequenceBy="customer", chunkSize=10)
        wait_until(lambda: queue.counts()["completed"] == 200, "all jobs")
    expected = {str(key): list(range(key, 100, 7)) + [n for n in range(100, 200) if n % 7 == key] for key in range(7)}
    assert orders(client, queue, lambda data: str(data["customer"])) == expected
    said = refusal(bull, bull.spark.range(3), sequenceBy="id", delivery="at-least-once")
    assert "expected `delivery` to be exactly-once with `sequenceBy`" in said


def test_a_write_for_which_a_queue_has_no_room_adds_nothing_or_drops_jobs(bull: Bull, queue: BullQueue) -> None:
    said = refusal(bull, frame_of(bull, 30), maxLength=20, chunkSize=5)
    assert "QueueFull: expected room for 30 jobs in queue q" in said
    assert queue.writes() == []
    with pytest.raises(PySparkException, match=r"QueueFull: partition \d, expected room for \d+ jobs in queue q"):
        bull.write(frame_of(bull, 30), maxLength=20, chunkSize=5, delivery="at-least-once")
    queue.drain()
    bull.write(frame_of(bull, 30), maxLength=20, whenFull="drop", chunkSize=4)
    (row,) = bull.read(view="writes").where("state = 'finished'").collect()
    assert (row.jobs, row.added, row.dropped, queue.counts()["wait"]) == (30, 20, 10, 20)


def test_a_stream_goes_on_when_the_queue_has_room(queue: BullQueue, bull: Bull, files: Files) -> None:
    source = bull.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20).load()
    writer = source.selectExpr("value AS n").writeStream.format("bull").options(**bull.options, queue="q")
    stream = writer.options(maxLength="10", whenFull="wait", checkpointLocation=str(files.checkpoint)).start()
    seen: set[int] = set()

    def enough() -> bool:
        waiting = queue.page("wait")
        assert len(waiting) <= 10
        for job in waiting:
            assert job.data["n"] not in seen
            seen.add(job.data["n"])
            queue.remove(job.id)
        return len(seen) >= 60

    try:
        wait_until(enough, "three batches")
    finally:
        stream.stop()
    assert set(range(60)) <= seen


def test_a_closed_queue_refuses_writes_before_any_task(bull: Bull, queue: BullQueue) -> None:
    queue.close_intake()
    broken = bull.spark.range(1).selectExpr("CAST(raise_error('a task ran') AS STRING) AS data")
    assert "IntakeClosed: queue q accepts no jobs until" in refusal(bull, broken)
    rows = frame_of(bull, 3).selectExpr("named_struct('n', n) AS data", "'q' AS queue")
    assert "IntakeClosed" in refusal(bull, rows, None, protocol="bullmq")
    assert queue.counts()["wait"] == 0


#: Options that are wrong, and what is said.
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"whenFull": "wait"}, "expected `maxLength` with `whenFull`, got none"),
    ({"maxLength": 5, "onFinish": "{}"}, "expected one of `maxLength` and `onFinish`, got both"),
    ({"maxLength": -1}, "expected `maxLength` to be a positive integer, got: '-1'"),
]


def test_wrong_options_and_children_are_refused(bull: Bull, queue: BullQueue) -> None:
    for options, message in WRONG:
        assert message in refusal(bull, frame_of(bull, 1), **options)
    flows = bull.spark.range(3).selectExpr(
        "'{}' AS data", "array(named_struct('data', '{}', 'jobId', if(id = 1, '7', 'x'))) AS children"
    )
    said = refusal(bull, flows, maxLength=5, protocol="bullmq")
    assert "expected no `maxLength` with a column `children`, got both" in said
    with pytest.raises(PySparkException, match=r"row \d, children\[0\]: expected `jobId` not to be an integer"):
        bull.write(flows)
    assert not any(queue.counts().values())
