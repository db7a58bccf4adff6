"""Writes of flows, of sequences and with a callback, and writes to queues with a maximum length or a closed intake."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from redis import Redis

from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.run.job.running_job import RunningJob
from tests.spark.conftest import Bull, Files
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
#: The callback of a write, in the queue pages.
ON_FINISH = '{"queue": "pages"}'


@pytest.fixture
def others(bull: Bull) -> Iterator[list[BullQueue]]:
    """The queues pages and words."""
    opened = [BullQueue(name, **bull.options, protocol="bullmq") for name in ("pages", "words")]
    yield opened
    for queue in opened:
        queue.close()


def frame_of(bull: Bull, jobs: int) -> DataFrame:
    return bull.spark.range(0, jobs, 1, 2).selectExpr("id AS n")


def test_flows_are_written_and_processed_children_first(bull: Bull, queue: BullQueue, others: list[BullQueue]) -> None:
    pages, words = others
    seen: list[int] = []

    def bind(job: RunningJob) -> None:
        seen.extend(job.children_values().values())

    with (
        OurWorker(words.handle, lambda job: job.data["n"]),
        OurWorker(pages.handle, lambda job: 10 * sum(job.children_values().values())),
        OurWorker(queue.handle, bind),
    ):
        bull.write(frame_of(bull, 40).selectExpr(*FLOW), chunkSize=20)
        wait_until(lambda: queue.counts()["completed"] == 40, "the first jobs of all flows")
    assert sorted(seen) == [10] * 40 + [20] * 40 + [30] * 40
    assert [one.counts()["completed"] for one in (pages, words)] == [120, 120]
    (record,) = queue.writes()
    assert (record.jobs, record.added) == (280, 280)


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_flows_of_a_stream_are_added_once_also_if_a_batch_is_repeated(
    queue: BullQueue, others: list[BullQueue], files: Files, delivery: str
) -> None:
    files.put(*range(10))
    files.write(files.rows().selectExpr(*FLOW), delivery=delivery)
    files.forget_last_commit()
    files.write(files.rows().selectExpr(*FLOW), delivery=delivery)
    pages, words = others
    assert (queue.counts()["waiting-children"], pages.counts()["waiting-children"]) == (10, 30)
    assert words.counts()["wait"] == 30


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_each_micro_batch_has_a_callback_also_if_it_is_repeated(
    queue: BullQueue, others: list[BullQueue], files: Files, delivery: str
) -> None:
    report, found = others[0], list[list[int]]()

    def add_up(job: RunningJob) -> None:
        values = job.children_values().values()
        found.append([len(values), sum(values)])

    with OurWorker(queue.handle, lambda job: job.data["n"]), OurWorker(report.handle, add_up):
        options = {"onFinish": ON_FINISH, "delivery": delivery}
        files.write_with_a_repetition(10, lambda: files.rows().repartition(2), **options)
        wait_until(lambda: report.counts()["completed"] == 3, "three callbacks")
        wait_until(lambda: queue.counts()["completed"] == 30, "all jobs")
    assert sorted(found) == [[10, 45], [10, 145], [10, 245]]


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
    with pytest.raises(PySparkException, match="expected `delivery` to be exactly-once with `sequenceBy`"):
        bull.write(bull.spark.range(3), sequenceBy="id", delivery="at-least-once")


def test_a_write_for_which_a_queue_has_no_room_adds_nothing_or_drops_jobs(bull: Bull, queue: BullQueue) -> None:
    with pytest.raises(PySparkException, match="QueueFull: expected room for 30 jobs in queue q"):
        bull.write(frame_of(bull, 30), maxLength=20, chunkSize=5)
    assert queue.writes() == []
    assert list(queue.handle.connection.call("KEYS", f"{queue.handle.keys.base}spark:*")) == []
    with pytest.raises(PySparkException, match=r"QueueFull: partition \d, expected room for \d+ jobs in queue q"):
        bull.write(frame_of(bull, 30), maxLength=20, chunkSize=5, delivery="at-least-once")
    queue.drain()
    for delivery in ("exactly-once", "at-least-once"):
        bull.write(frame_of(bull, 30), maxLength=20, whenFull="drop", chunkSize=4, delivery=delivery)
        assert queue.counts()["wait"] == 20
        queue.drain()
    rows = bull.read(view="writes").where("state = 'finished'").collect()
    assert [(row.jobs, row.added, row.dropped) for row in rows] == [(30, 20, 10)] * 2


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
    with pytest.raises(PySparkException, match="IntakeClosed: queue q accepts no jobs until"):
        bull.write(broken)
    rows = frame_of(bull, 3).selectExpr("named_struct('n', n) AS data", "'q' AS queue")
    for delivery in ("exactly-once", "at-least-once"):
        with pytest.raises(PySparkException, match="IntakeClosed"):
            bull.write(rows, queue=None, delivery=delivery, protocol="bullmq")
    assert queue.counts()["wait"] == 0
    queue.open_intake()
    bull.write(rows, queue=None, protocol="bullmq")
    assert queue.counts()["wait"] == 3


#: Options that are wrong, and what is said.
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"whenFull": "wait"}, "expected `maxLength` with `whenFull`, got none"),
    ({"maxLength": 5, "onFinish": "{}"}, "expected one of `maxLength` and `onFinish`, got both"),
    ({"maxLength": -1}, "expected `maxLength` to be a positive integer, got: '-1'"),
    ({"maxLength": 5, "whenFull": "block"}, "expected `whenFull` to be one of fail, wait, drop, got: 'block'"),
    ({"onFinish": '{"quue": "x"}'}, "unknown member `quue` of `onFinish`"),
]


def test_wrong_options_and_children_are_refused(bull: Bull, queue: BullQueue) -> None:
    for options, message in WRONG:
        with pytest.raises(PySparkException, match=message):
            bull.write(frame_of(bull, 1), **options)
    flows = bull.spark.range(3).selectExpr(
        "'{}' AS data", "array(named_struct('data', '{}', 'jobId', if(id = 1, '7', 'x'))) AS children"
    )
    with pytest.raises(PySparkException, match="expected no `maxLength` with a column `children`, got both"):
        bull.write(flows, maxLength=5, protocol="bullmq")
    with pytest.raises(PySparkException, match=r"children\[0\]: expected `jobId` not to be an integer"):
        bull.write(flows)
    assert not any(queue.counts().values())
