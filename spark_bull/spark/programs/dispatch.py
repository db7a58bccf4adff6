"""Adds rows of files as jobs of a queue."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spark_bull.queue.core.handle import QueueHandle
from spark_bull.queue.dispatch.writes import records
from spark_bull.spark.dispatch.progress import WriteProgress


@dataclass(frozen=True)
class Source:
    """Files to read, options of their format, and SQL over the view `input` that returns the columns of the jobs."""

    path: str
    format: str
    options: Mapping[str, str]
    query: str | None = None


@dataclass(frozen=True)
class Dispatched:
    """The result of a dispatch."""

    queue: str
    protocol: str
    added: int
    duplicates: int
    deduplicated: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.added:,} jobs added to queue {self.queue} ({self.protocol}), {self.duplicates:,} duplicates, "
            f"{self.deduplicated:,} deduplicated, {self.seconds:.1f} s, {self.added / self.seconds:,.0f} jobs/s"
        )


def dispatch(spark: SparkSession, source: Source, handle: QueueHandle, options: Mapping[str, Any]) -> Dispatched:
    """Writes the rows to the queue. options: the options of the write."""
    jobs = spark.read.format(source.format).options(**source.options).load(source.path)
    if source.query:
        jobs.createOrReplaceTempView("input")
        jobs = spark.sql(source.query)
    return added(spark, jobs, handle, options)


def added(spark: SparkSession, jobs: DataFrame, handle: QueueHandle, options: Mapping[str, Any]) -> Dispatched:
    """Writes rows to a queue and shows the progress. options: the options of the write."""
    started = time.monotonic()
    with WriteProgress(spark, handle):
        jobs.write.format("bull").options(**options).option("queue", handle.keys.queue).mode("append").save()
    seconds = time.monotonic() - started
    record = records(handle)[-1]
    return Dispatched(record.queue, handle.dialect.name, record.added, record.duplicates, record.deduplicated, seconds)
