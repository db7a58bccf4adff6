"""Writes finished jobs of queues to a table of files exactly once, partitioned by queue and day."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from spark_bull.spark.platform.capabilities import CAPABILITIES
from spark_bull.spark.platform.query_start import start_query


@dataclass(frozen=True)
class Table:
    """A table of files. checkpoint: checkpoint folder; default: `_checkpoint` in the table's folder."""

    path: str
    format: str = "parquet"
    checkpoint: str | None = None


@dataclass(frozen=True)
class Collected:
    """The number of finished jobs written, and the output."""

    queue: str
    jobs: int
    output: str

    def __str__(self) -> str:
        return f"{self.jobs:,} finished jobs of {self.queue} written to {self.output}"


def results(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """Reads finished jobs with the day on which they finished, or were collected (Bull 1 stores no finish time)."""
    jobs = spark.readStream.format("bull").options(**options).load()
    return jobs.withColumn("day", f.to_date(f.coalesce("finishedOn", f.current_timestamp())))


def start(jobs: DataFrame, table: Table, every: str | None = None) -> StreamingQuery:
    """Starts a query that appends jobs to the table. every: trigger interval; None: all available jobs, once."""
    trigger: dict[str, Any] = {"processingTime": every} if every else {"availableNow": True}
    writer = jobs.writeStream.format(table.format).partitionBy("queue", "day").trigger(**trigger)
    writer = writer.option("checkpointLocation", table.checkpoint or f"{table.path.rstrip('/')}/_checkpoint")
    return start_query(lambda: writer.start(table.path))


def collect(spark: SparkSession, table: Table, options: Mapping[str, str], every: str | None = None) -> Collected:
    """Writes all finished jobs; with `every`, until the program is stopped. options: the options of the read."""
    # The number of jobs is summed from the progress of all batches, of which Spark keeps 100 by default.
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", 100_000)
    rows, is_done = 0, False
    while not is_done:
        query = start(results(spark, options), table, every)
        query.awaitTermination()
        written = sum(batch["numInputRows"] for batch in query.recentProgress)
        rows += written
        # Otherwise a run has one batch.
        is_done = every is not None or CAPABILITIES["available-now"].has or not written
    return Collected(options["queue"], rows, table.path)
