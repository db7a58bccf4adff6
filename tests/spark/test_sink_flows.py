"""The column `children` in writes and streams of Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from spark_bull.queue.bull_queue import BullQueue
from spark_bull.worker.job.running_job import RunningJob
from tests.spark.conftest import Bull
from tests.support.wait import PATIENCE_S, wait_until
from tests.support.worker import OurWorker

each_delivery = pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
#: A job of queue q with three children in queue pages, each of which has one in queue words.
FLOW = [
    "concat('b', n) AS jobId",
    "named_struct('book', n) AS data",
    "transform(sequence(1, 3), i -> named_struct('queue', 'pages', 'data', named_struct('page', i), 'children',"
    " array(named_struct('queue', 'words', 'data', to_json(named_struct('n', i)))))) AS children",
]


@pytest.fixture
def queues(bull: Bull) -> Iterator[list[BullQueue]]:
    opened = [BullQueue(name, **bull.options, protocol="bullmq") for name in ("q", "pages", "words")]  # type: ignore[arg-type]
    yield opened
    for queue in opened:
        queue.close()


@each_delivery
def test_flows_are_written_and_processed_children_first(bull: Bull, queues: list[BullQueue], delivery: str) -> None:
    books, pages, words = queues
    seen: list[int] = []

    def bind(job: RunningJob) -> None:
        seen.extend(job.children_values().values())

    frame = bull.spark.range(0, 40, 1, 3).selectExpr("id AS n").selectExpr(*FLOW)
    with (
        OurWorker(words.handle, lambda job: job.data["n"]),
        OurWorker(pages.handle, lambda job: 10 * sum(job.children_values().values())),
        OurWorker(books.handle, bind),
    ):
        bull.write(frame, delivery=delivery, chunkSize=20)
        wait_until(lambda: books.counts()["completed"] == 40, "the first jobs of all flows")
    assert sorted(seen) == [10] * 40 + [20] * 40 + [30] * 40
    assert [queue.counts()["completed"] for queue in queues] == [40, 120, 120]
    (record,) = books.writes()
    assert (record.jobs, record.added) == (280, 280)


@each_delivery
def test_flows_of_a_stream_are_added_once_also_if_a_batch_is_repeated(
    bull: Bull, queues: list[BullQueue], delivery: str, tmp_path: Path
) -> None:
    def stream() -> None:
        rows = bull.spark.readStream.schema("n LONG").json(str(tmp_path / "in")).selectExpr(*FLOW)
        writer = rows.writeStream.format("bull").options(**bull.options).option("queue", "q")
        writer = writer.options(delivery=delivery, checkpointLocation=str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination(PATIENCE_S)

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text("\n".join(json.dumps({"n": n}) for n in range(10)), "utf-8")
    stream()
    # Spark repeats a batch that it has not recorded.
    for name in ("0", ".0.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)
    stream()
    assert [queue.counts()["waiting-children"] for queue in queues] == [10, 30, 0]
    assert queues[2].counts()["wait"] == 30


def test_bad_children_fail_the_write_before_anything_is_visible(bull: Bull, queues: list[BullQueue]) -> None:
    frame = bull.spark.range(3).selectExpr(
        "'{}' AS data", "array(named_struct('data', '{}', 'jobId', if(id = 1, '7', 'x'))) AS children"
    )
    with pytest.raises(PySparkException, match=r"children\[0\]: expected `jobId` not to be an integer"):
        bull.write(frame)
    assert not any(queues[0].counts().values())
