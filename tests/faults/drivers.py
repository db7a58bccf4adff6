"""Programs that are Spark drivers, for tests that kill or interrupt them.

    python -m tests.faults.drivers PROGRAM '{"url": "…", "prefix": "…", …}'

PROGRAM is the name of a function of this module, which gets the session and the JSON as its arguments.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

import spark_bull
from spark_bull import RunningJob, Worker
from spark_bull.spark.platform.requirements import is_late, start_query
from tests.support.drivers import DriverProcess, processing_query
from tests.support.wait import call_in


def driver(log: Path, program: str, **plan: Any) -> DriverProcess:
    return DriverProcess(log, __name__, program, **plan)


def _with_follow_ups(jobs: DataFrame) -> DataFrame:
    data = f.struct(f.col("data.n").alias("of"))
    own, other = (f.struct(data.alias("data"), queue.alias("queue")) for queue in (f.lit("q"), f.lit("next")))
    then = f.when(f.col("data.of").isNull(), f.array(own, other))
    return jobs.select("id", "token", f.lit(1).alias("returnvalue"), then.alias("then"))


def following_query(spark: SparkSession, checkpoint: str, **options: Any) -> AbstractContextManager[StreamingQuery]:
    claim: dict[str, Any] = {"payload_schema": "n LONG, of LONG", "lockMs": 3_000, "maxJobsPerTrigger": 20}
    return processing_query(spark, _with_follow_ups, checkpoint, options, **claim)


def follow(spark: SparkSession, **plan: Any) -> None:
    with following_query(spark, **plan) as query:
        query.awaitTermination()


def collect(spark: SparkSession, folder: str, trigger: Mapping[str, Any], queues: Mapping[str, Any]) -> None:
    """Collects the finished jobs of queues until all queries have ended by themselves.

    queues: the options of each; its query has FOLDER/QUEUE/table and FOLDER/QUEUE/checkpoint.
    """

    def start(queue: str) -> StreamingQuery:
        jobs = spark.readStream.format("bull").options(queue=queue, **queues[queue]).load()
        writer = jobs.writeStream.format("parquet").trigger(**trigger)
        writer = writer.option("checkpointLocation", str(Path(folder, queue, "checkpoint")))
        return start_query(lambda: writer.start(str(Path(folder, queue, "table"))))

    running = {queue: start(queue) for queue in queues}
    while running:
        time.sleep(0.2)
        for queue, query in [*running.items()]:
            if query.isActive:
                continue
            if (error := query.exception()) is None:
                del running[queue]
            elif is_late(error):
                running[queue] = start(queue)
            else:
                raise error


def call(spark: SparkSession, file: str, rows: int, **options: Any) -> None:
    """Calls for numbers in two tasks, whose rows with errors and results go into `file`, as JSON."""
    numbers = spark.range(rows).repartition(2)
    found = spark_bull.call(numbers, "q", **options).collect()
    Path(file).write_text(json.dumps([[row["id"], row["error"], row["result"]] for row in found]))


def write(spark: SparkSession, rows: int, **options: Any) -> None:
    """Writes numbers in two tasks, in their order."""
    frame = spark.range(rows).selectExpr("id AS n").repartitionByRange(2, "n").sortWithinPartitions("n")
    frame.write.format("bull").options(**options, queue="q").mode("append").save()


def work(spark: SparkSession, started: str, **options: Any) -> None:
    """A worker that runs until the program is interrupted; job 0 never ends. started: a file for when it waits."""
    spark.sparkContext.setLogLevel("ERROR")

    def first_never_ends(job: RunningJob) -> int:
        job.update_progress(1)
        while job.data["n"] == 0:
            time.sleep(0.1)
        return int(job.data["n"])

    with Worker(spark, "q", first_never_ends, slots=1, lock_ms=3_600_000, **options) as worker:
        # Ctrl-C ends a program that waits for its worker.
        call_in(type(worker._engine).wait, Path(started).touch)
        worker.await_termination()


def main(program: str, plan: str) -> None:
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark_bull.register(spark)
    globals()[program](spark, **json.loads(plan))


if __name__ == "__main__":
    main(*sys.argv[1:])
