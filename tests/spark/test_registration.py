"""A thread that registers the data source writes, and runs a worker. test_quickstart.py registers it twice."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession

import spark_bull
from spark_bull import BullQueue, Worker
from spark_bull.spark.platform.requirements import VARIABLE
from tests.spark.conftest import Bull, Files
from tests.support.wait import wait_until


def in_thread(function: Callable[[], object]) -> None:
    """Calls the function in a thread for which Spark has no active session."""
    with ThreadPoolExecutor(1) as threads:
        threads.submit(function).result()


def test_a_thread_writes_after_it_has_registered_the_data_source(bull: Bull, queue: BullQueue, files: Files) -> None:
    def write() -> None:
        with pytest.raises(Py4JJavaError, match="DATA_SOURCE_NOT_FOUND"):
            bull.write(bull.spark.range(3))
        assert bull.read().count() == 0, "a read needs no active session"
        spark_bull.register(bull.spark)
        bull.write(bull.spark.range(3))
        files.put(1, 2, 3)
        files.write()

    in_thread(write)
    assert queue.counts()["wait"] == 6


def test_a_worker_runs_in_a_thread(queue: BullQueue, spark: SparkSession, redis_url: str, prefix: str) -> None:
    def transform(jobs: DataFrame) -> DataFrame:
        return jobs.selectExpr("id", "token", "'1' AS returnvalue")

    def process(processor: Callable[..., object], completed: int) -> None:
        queue.add({})
        with Worker(spark, "q", processor, slots=1, url=redis_url, prefix=prefix, progress=False):
            wait_until(lambda: queue.counts()["completed"] == completed, "the job to complete")

    in_thread(lambda: process(lambda job: 1, 1))
    in_thread(lambda: process(transform, 2))


def test_a_call_in_an_unregistered_session_runs_with_the_python_of_the_program(
    spark: SparkSession, redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    # An activated environment has the program's Python there.
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "python3")
    spark_bull.call(spark.range(1), "q", url=redis_url, prefix=prefix)
    assert spark.sparkContext.pythonExec == sys.executable
