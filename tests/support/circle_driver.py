"""A driver of a whole circle: files of rows become jobs, a worker processes some of them, results become a table.

python -m tests.support.circle_driver '{"folder": "…", "url": "…", "prefix": "…"}'

It runs until it is killed. FOLDER has the files (rows), the table (results) and the checkpoints of both queries.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

import spark_bull
from spark_bull import Worker
from spark_bull.spark.platform.query_start import start_query
from spark_bull.worker.job.running_job import RunningJob
from tests.support.driver_process import DriverProcess

QUEUE = "orders"
#: How long the jobs of a killed worker are locked, ms.
LOCK_MS = 3_000
#: A job may lose its worker as often as workers are killed.
MAX_STALLED = 100
#: Time that a job takes, so that all workers have jobs, s.
JOB_S = 0.01
#: Small batches, so that kills meet many different steps of them.
FILES_PER_BATCH = 2


class CircleDriver(DriverProcess):
    """This driver in a separate process."""

    def __init__(self, log: Path, **plan: Any) -> None:
        super().__init__(log, __name__, **plan)


class Circle:
    """The two queries of a circle. options: url and prefix of the queue."""

    def __init__(self, spark: SparkSession, folder: Path, options: Mapping[str, str]) -> None:
        self._spark, self._folder = spark, folder
        self._options = {**options, "protocol": "bullmq", "queue": QUEUE}

    def dispatch(self, trigger: Mapping[str, Any]) -> StreamingQuery:
        """Makes a job of each row, which is kept until its result is collected, whatever the rules of the workers."""
        files = self._spark.readStream.schema("n INT, behaviour STRING").option("maxFilesPerTrigger", FILES_PER_BATCH)
        payload = f.struct("n", f.col("behaviour").alias("$behaviour"))
        rows = files.parquet(str(self._folder / "rows"))
        jobs = rows.select(f.format_string("order-%d", "n").alias("jobId"), payload.alias("data"))
        writer = jobs.writeStream.format("bull").options(**self._options)
        writer = writer.options(removeOnComplete="false", removeOnFail="false")
        return self._start(writer, "dispatch", trigger)

    def collect(self, trigger: Mapping[str, Any]) -> StreamingQuery:
        """Writes each result to the table, and deletes its job then."""
        results = self._spark.readStream.format("bull").options(**self._options, removeOnRead="true").load()
        writer = results.select("id", "state", "returnvalue", "processedBy").writeStream.format("parquet")
        return self._start(writer.option("path", str(self._folder / "results")), "collect", trigger)

    def _start(self, writer: Any, name: str, trigger: Mapping[str, Any]) -> StreamingQuery:
        writer = writer.option("checkpointLocation", str(self._folder / "checkpoints" / name)).trigger(**trigger)
        return start_query(writer.start)


def echo(job: RunningJob) -> dict[str, Any]:
    """Takes as long as the scripted processor of Node, and returns the same."""
    time.sleep(JOB_S)
    return {"echo": job.data}


def main(plan: dict[str, str]) -> None:
    builder = SparkSession.builder.master("local[3]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    spark_bull.register(spark)
    folder = Path(plan.pop("folder"))
    worker = Worker(
        spark,
        QUEUE,
        echo,
        slots=1,
        worker_name="spark",
        lock_ms=LOCK_MS,
        max_stalled=MAX_STALLED,
        check_ms=500,
        chunk_size=20,
        **plan,  # type: ignore[arg-type]
    )
    with worker:
        circle = Circle(spark, folder, plan)
        for start in (circle.dispatch, circle.collect):
            start({"processingTime": "0 seconds"})
        spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
