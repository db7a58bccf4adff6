"""Registering the data source logs nothing, with Spark's own settings of its log; a thread that registers it writes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import spark_bull
from spark_bull import BullQueue, Worker
from tests.spark.conftest import Bull
from tests.support.wait import wait_until

ROOT = Path(__file__).parents[2]
PROGRAM = """
from pyspark.sql import SparkSession
import spark_bull

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark_bull.register(spark)
spark_bull.register(spark)
# Such as the one of each query of a stream.
spark._jsparkSession.cloneSession().sessionState().dataSourceManager().dataSourceExists("bull")
"""


@pytest.mark.usefixtures("forked_python")
def test_registering_again_warns_of_nothing() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_CONF_DIR"}
    environment |= {"PYTHONPATH": str(ROOT)}
    ran = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    assert "ata source" not in ran.stderr.replace("Data Source", "data source")


def in_thread(function: Callable[[], object]) -> None:
    """Calls the function in a thread for which Spark has no active session."""
    with ThreadPoolExecutor(1) as threads:
        threads.submit(function).result()


def test_a_thread_writes_after_it_has_registered_the_data_source(
    spark: SparkSession, bull: Bull, redis_url: str, prefix: str, tmp_path: Path
) -> None:
    def write() -> None:
        spark_bull.register(spark)
        frame = spark.range(3).selectExpr("to_json(struct(id)) AS data")
        bull.write(frame)
        frame.write.json(str(tmp_path / "frames"))
        frames = spark.readStream.schema("data STRING").json(str(tmp_path / "frames"))
        stream = frames.writeStream.format("bull").options(**bull.options, queue="q")
        stream = stream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert stream.trigger(availableNow=True).start().awaitTermination(60)

    in_thread(write)
    with BullQueue("q", url=redis_url, prefix=prefix) as queue:
        assert queue.counts()["wait"] == 6


def test_a_worker_runs_in_a_thread(spark: SparkSession, redis_url: str, prefix: str) -> None:
    def transform(jobs: DataFrame) -> DataFrame:
        return jobs.selectExpr("id", "token", "'1' AS returnvalue")

    with BullQueue("q", url=redis_url, prefix=prefix, protocol="bullmq") as queue:

        def process(processor: Callable[..., object], completed: int) -> None:
            queue.add({})
            with Worker(spark, "q", processor, slots=1, url=redis_url, prefix=prefix, progress=False):
                wait_until(lambda: queue.counts()["completed"] == completed, "the job to complete")

        in_thread(lambda: process(lambda job: 1, 1))
        in_thread(lambda: process(transform, 2))
