"""The option `onFinish` in writes and streams of Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from spark_bull.queue.bull_queue import BullQueue
from spark_bull.worker.job.running_job import RunningJob
from tests.spark.conftest import Bull
from tests.support.wait import PATIENCE_S, wait_until
from tests.support.worker import OurWorker

each_delivery = pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
ON_FINISH = json.dumps({"queue": "report", "name": "sum"})


@pytest.fixture
def queues(bull: Bull) -> Iterator[list[BullQueue]]:
    """The queue of the jobs, and that of the callbacks."""
    opened = [BullQueue(name, **bull.options, protocol="bullmq") for name in ("q", "report")]  # type: ignore[arg-type]
    yield opened
    for queue in opened:
        queue.close()


@each_delivery
def test_the_callback_runs_when_all_jobs_of_a_write_have_ended(
    bull: Bull, queues: list[BullQueue], delivery: str
) -> None:
    jobs, report = queues
    sums: list[int] = []

    def add_up(job: RunningJob) -> None:
        sums.append(sum(job.children_values().values()))

    with OurWorker(jobs.handle, lambda job: job.data["n"], chunk_size=20), OurWorker(report.handle, add_up):
        frame = bull.spark.range(0, 500, 1, 3).selectExpr("id AS n")
        bull.write(frame, delivery=delivery, chunkSize=20, onFinish=ON_FINISH)
        wait_until(lambda: report.counts()["completed"] == 1, "the callback")
    assert sums == [sum(range(500))]
    assert jobs.counts()["completed"] == 500


@each_delivery
def test_each_micro_batch_has_a_callback_also_if_it_is_repeated(
    bull: Bull, queues: list[BullQueue], delivery: str, tmp_path: Path
) -> None:
    jobs, report = queues
    found: list[int] = []

    def count(job: RunningJob) -> None:
        found.append(len(job.children_values()))

    def stream() -> None:
        rows = bull.spark.readStream.schema("n LONG").option("maxFilesPerTrigger", 1).json(str(tmp_path / "in"))
        writer = rows.repartition(2).writeStream.format("bull").options(**bull.options).option("queue", "q")
        writer = writer.options(onFinish=ON_FINISH, delivery=delivery, checkpointLocation=str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination(PATIENCE_S)

    def put(number: int) -> None:
        (tmp_path / "in").mkdir(exist_ok=True)
        lines = [json.dumps({"n": n}) for n in range(number * 10, number * 10 + 10)]
        (tmp_path / "in" / f"{number}.json").write_text("\n".join(lines), "utf-8")

    with OurWorker(jobs.handle, lambda job: None), OurWorker(report.handle, count):
        put(0)
        put(1)
        stream()
        # Spark repeats a batch that it has not recorded.
        for name in ("1", ".1.crc"):
            (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)
        put(2)
        stream()
        wait_until(lambda: report.counts()["completed"] == 3, "three callbacks")
        wait_until(lambda: jobs.counts()["completed"] == 30, "all jobs")
    assert found == [10, 10, 10]


def test_a_failed_write_leaves_no_callback(bull: Bull, queues: list[BullQueue]) -> None:
    jobs, report = queues
    frame = bull.spark.range(0, 10, 1, 2).selectExpr("assert_true(id < 0) AS n")
    for delivery in ("exactly-once", "at-least-once"):
        with pytest.raises(PySparkException):
            bull.write(frame, delivery=delivery, onFinish=ON_FINISH)
    assert not any(count for queue in (jobs, report) for count in queue.counts().values())


def test_a_wrong_callback_is_an_error_of_the_write(bull: Bull) -> None:
    frame: Any = bull.spark.range(1)
    with pytest.raises(PySparkException, match="unknown member `quue` of `onFinish`"):
        bull.write(frame, onFinish='{"quue": "x"}')
