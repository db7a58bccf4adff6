"""Adds rows of files as jobs of a queue."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spark_bull.core.queue.dispatch.writes import read_record, records
from spark_bull.core.queue.handle.handle import QueueHandle
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


def dispatch(
    spark: SparkSession, source: Source, queue: str, handles: Sequence[QueueHandle], options: Mapping[str, Any]
) -> Dispatched:
    """Writes the rows to the queue. handles: the queue, or its shards. options: the options of the write."""
    jobs = spark.read.format(source.format).options(**source.options).load(source.path)
    if source.query:
        jobs.createOrReplaceTempView("input")
        jobs = spark.sql(source.query)
    return added(spark, jobs, queue, handles, options)


def added(
    spark: SparkSession, jobs: DataFrame, queue: str, handles: Sequence[QueueHandle], options: Mapping[str, Any]
) -> Dispatched:
    """As `dispatch`, for rows; shows the progress."""
    started = time.monotonic()
    with WriteProgress(spark, handles):
        jobs.write.format("bull").options(**options).option("queue", queue).mode("append").save()
    seconds = time.monotonic() - started
    write_id = records(handles[0])[-1].id
    parts = [part for handle in handles if (part := read_record(handle, write_id))]
    return Dispatched(
        queue,
        handles[0].dialect.name,
        sum(part.added for part in parts),
        sum(part.duplicates for part in parts),
        sum(part.deduplicated for part in parts),
        seconds,
    )
