"""Job schedulers made by Node continue with workers and with mode=claim as they do with a Node worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_bull import BullQueue, Worker
from spark_bull.spark.platform.requirements import start_query
from tests.support.jobs import HOUR
from tests.support.node import each_peer_of
from tests.support.pair import Pair
from tests.support.schedule_rounds import Rounds, Schedule

ROUNDS: Final = 2


def options_of(queue: BullQueue) -> dict[str, str]:
    keys = queue.handle.keys
    return {"url": queue.handle.connection.settings.url, "prefix": keys.prefix, "protocol": queue.protocol}


def answered(jobs: DataFrame) -> DataFrame:
    return jobs.select("id", "token", f.lit(1).alias("returnvalue"))


def worker(spark: SparkSession, _folder: Path, queue: BullQueue, *, processor: Any) -> Worker:
    return Worker(spark, queue.name, processor, slots=1, progress=False, **options_of(queue))


@contextmanager
def claiming_query(spark: SparkSession, folder: Path, queue: BullQueue) -> Iterator[None]:
    options = {**options_of(queue), "queue": queue.name}
    jobs = spark.readStream.format("bull").options(**options, mode="claim").load()
    writer = answered(jobs).writeStream.format("bull").options(**options, mode="settle")
    query = start_query(writer.option("checkpointLocation", str(folder)).start)
    try:
        yield
    finally:
        query.stop()


WAYS: Final[dict[str, Callable[..., Any]]] = {
    "function": partial(worker, processor=lambda _: 1),
    "DataFrame": partial(worker, processor=answered),
    "mode=claim": claiming_query,
}


@pytest.mark.interop
@pytest.mark.parametrize("way", WAYS)
@each_peer_of("bullmq-6")
def test_a_scheduler_continues_as_in_node(spark: SparkSession, pair: Pair, tmp_path: Path, way: str) -> None:
    one = Rounds(pair, Schedule({"every": HOUR}))
    one.make()
    one.stay_alike(ROUNDS, partial(WAYS[way], spark, tmp_path))
    for queue in one.queues.values():
        assert len(one.delayed(queue)) == 1
        assert queue.counts()["completed"] >= ROUNDS
