"""The option `sequenceBy` in writes and streams of Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from redis import Redis

from spark_bull.queue.bull_queue import BullQueue
from tests.spark.conftest import Bull
from tests.support.sequences import orders
from tests.support.wait import PATIENCE_S, wait_until
from tests.support.worker import OurWorker


@pytest.fixture
def queue(bull: Bull) -> Iterator[BullQueue]:
    with BullQueue("q", **bull.options, protocol="bullmq") as queue:  # type: ignore[arg-type]
        yield queue


def test_the_jobs_of_a_key_run_in_the_order_of_the_rows_over_writes(
    bull: Bull, queue: BullQueue, client: Redis
) -> None:
    """Also if the rows of a key are in several partitions."""
    with OurWorker(queue.handle, lambda job: None, concurrency=4):
        for first in (0, 100):
            frame = bull.spark.range(first, first + 100, 1, 4).selectExpr("id AS n", "id % 7 AS customer").orderBy("n")
            bull.write(frame, sequenceBy="customer", chunkSize=10)
        wait_until(lambda: queue.counts()["completed"] == 200, "all jobs")
    expected = {str(key): list(range(key, 100, 7)) + [n for n in range(100, 200) if n % 7 == key] for key in range(7)}
    assert orders(client, queue, lambda data: str(data["customer"])) == expected


def test_the_order_is_kept_over_the_batches_of_a_stream(
    bull: Bull, queue: BullQueue, client: Redis, tmp_path: Path
) -> None:
    """A column beside `data` is the key."""
    (tmp_path / "in").mkdir()
    rows = bull.spark.readStream.schema("n LONG").option("maxFilesPerTrigger", 1).json(str(tmp_path / "in"))
    frame = rows.selectExpr("named_struct('n', n) AS data", "n % 3 AS customer")
    with OurWorker(queue.handle, lambda job: None, concurrency=4):
        for number in range(3):
            lines = [json.dumps({"n": n}) for n in range(number * 20, number * 20 + 20)]
            (tmp_path / "in" / f"{number}.json").write_text("\n".join(lines), "utf-8")
            writer = frame.writeStream.format("bull").options(**bull.options).option("queue", "q")
            writer = writer.options(sequenceBy="customer", checkpointLocation=str(tmp_path / "checkpoint"))
            writer.trigger(availableNow=True).start().awaitTermination(PATIENCE_S)
        wait_until(lambda: queue.counts()["completed"] == 60, "all jobs")
    assert orders(client, queue, lambda data: str(data["n"] % 3)) == {
        str(key): list(range(key, 60, 3)) for key in range(3)
    }


def test_at_least_once_is_refused(bull: Bull) -> None:
    with pytest.raises(PySparkException, match="expected `delivery` to be exactly-once with `sequenceBy`"):
        bull.write(bull.spark.range(3), sequenceBy="id", delivery="at-least-once")
