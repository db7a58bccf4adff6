"""The Spark drivers of the soak, as separate processes with a JVM each, which run until they are killed.

    python -m tests.proof.soak.drivers PROGRAM '{"url": "…", "prefix": "…", "notes": "…"}'

PROGRAM is the name of a function of this module that gets the session and the place.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

import spark_bull
from spark_bull import Promoter, Worker
from spark_bull.spark.platform.requirements import start_query
from tests.proof.actors import CHECK_MS
from tests.proof.producers import RETRY_MS, Notes, Place, once
from tests.proof.soak.audit import COLUMNS, TIMES
from tests.proof.soak.programs import ALL_QUEUES, AT_ONCE, FRAME_ROWS, is_over
from tests.proof.soak.slots import LOCK_MS, STREAMED, processor
from tests.support.drivers import processing_query

#: Heap of a JVM.
MEMORY = "512m"


def session() -> SparkSession:
    """A session whose tasks are tried again, as their processes are killed."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": MEMORY,
        # All of the heap is resident from the beginning: what grows is something else, and a full heap is an error.
        "spark.driver.extraJavaOptions": f"-Xms{MEMORY} -XX:+AlwaysPreTouch -XX:+ExitOnOutOfMemoryError",
        "spark.sql.shuffle.partitions": "2",
        # A kill in the first batch leaves a temporary file, and Spark refuses the checkpoint then.
        "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
        # What Spark keeps of past jobs and batches would grow up to its limits during the whole run.
        "spark.ui.retainedJobs": "20",
        "spark.ui.retainedStages": "20",
        "spark.ui.retainedTasks": "100",
        "spark.sql.ui.retainedExecutions": "20",
        "spark.sql.streaming.numRecentProgressUpdates": "10",
    }
    builder = SparkSession.builder.master("local[3,8]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark_bull.register(spark)
    return spark


def options_of(place: Place) -> dict[str, Any]:
    """How the data source reaches the queues."""
    return {"url": place.url, "prefix": place.prefix, "protocol": "bullmq", "retryMs": str(RETRY_MS)}


INTERVAL = {"processingTime": "2 seconds"}
PAUSE_S = 1.0
#: A write waits for room, so that the queues stay short while no worker runs.
ROOM = {"maxLength": "300", "whenFull": "wait"}


def folder_of(place: Place) -> Path:
    """The table of results, and the checkpoints."""
    return place.notes.path.parent


def has_stopped(place: Place) -> bool:
    """Whether this driver dispatches nothing more, as the soak ends."""
    return (folder_of(place) / "stopped").exists()


def dispatch(spark: SparkSession, place: Place) -> StreamingQuery:
    source = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=FRAME_ROWS, numPartitions=2).load()
    rows = source.selectExpr("concat('frames.', value) AS row")
    writer = rows.writeStream.format("bull").options(**options_of(place), queue="frames", **ROOM).trigger(**INTERVAL)
    return start_query(writer.option("checkpointLocation", str(folder_of(place) / "dispatch")).start)


def collect(spark: SparkSession, place: Place) -> StreamingQuery:
    """Writes each result to the table, and deletes its job then."""
    found = spark.readStream.format("bull").options(**options_of(place), queue=",".join(ALL_QUEUES))
    # The books tell what is lost, with all that is there.
    jobs = found.options(removeOnRead="true", failOnDataLoss="false").load()
    columns = [f.unix_millis(name).alias(name) if name in TIMES else name for name in COLUMNS]
    writer = jobs.select(*columns).coalesce(1).writeStream.format("parquet").trigger(**INTERVAL)
    writer = writer.option("checkpointLocation", str(folder_of(place) / "collect"))
    return start_query(lambda: writer.start(str(folder_of(place) / "results")))


def save(spark: SparkSession, place: Place, version: int) -> bool:
    """Saves a version of a DataFrame; returns whether it has succeeded."""
    rows = spark.range(0, FRAME_ROWS, 1, 2).selectExpr(f"concat('frame.{version}.', id) AS row")
    writer = rows.write.format("bull").options(**options_of(place), queue="frame", **ROOM)
    try:
        writer.options(**once("frame", version)).mode("append").save()
    except PySparkException as error:
        print(error, flush=True)
        return False
    place.notes.add("acked", "frame", number=version)
    return True


def dispatch_and_collect(spark: SparkSession, place: Place) -> None:
    """Dispatches batches and a stream, and collects all results."""
    collecting = collect(spark, place)
    if not is_over(place):
        dispatching = dispatch(spark, place)
        version = 1 + max((note.number for note in place.notes.of("acked") if note.name == "frame"), default=0)
        while not is_over(place):
            version += save(spark, place, version)
            if not (collecting.isActive and dispatching.isActive):
                raise RuntimeError(f"a query has ended: {collecting.exception() or dispatching.exception()}")
            time.sleep(PAUSE_S)
        dispatching.stop()
    (folder_of(place) / "stopped").touch()
    collecting.awaitTermination()


#: A job may lose its worker as often as workers are killed.
MAX_STALLED = 1_000


def echo(jobs: DataFrame) -> DataFrame:
    return jobs.select("id", "token", f.struct("data.row").alias("returnvalue"))


def work(spark: SparkSession, place: Place) -> None:
    """A worker, and a query that processes claimed jobs."""
    rescuing: Any = {"prefix": place.prefix, "protocol": "bullmq", "check_ms": CHECK_MS, "max_stalled": MAX_STALLED}
    slots = Worker(
        spark,
        queues=[queue for queue in ALL_QUEUES if queue != STREAMED],
        processor=processor(place.notes),
        slots=1,
        concurrency=4,
        group={"by": "tenant", "concurrency": AT_ONCE},
        url=place.url,
        retry_ms=RETRY_MS,
        lock_ms=LOCK_MS,
        progress=False,
        **rescuing,
    )
    claim: Any = {"queue": STREAMED, "payload_schema": "row STRING", "lockMs": LOCK_MS}
    batches = processing_query(spark, echo, folder_of(place) / "work", options_of(place), **claim)
    with slots, Promoter(place.url, [STREAMED], **rescuing), batches as query:
        while not (slots.await_termination(1) or query.awaitTermination(1)):
            pass


def main(program: str, plan: str) -> None:
    given = json.loads(plan)
    place = Place(given["url"], given["prefix"], Notes(Path(given["notes"])), 0, ())
    globals()[program](session(), place)


if __name__ == "__main__":
    main(*sys.argv[1:])
