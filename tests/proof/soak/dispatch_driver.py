"""A Spark driver that dispatches batches and a stream, and collects all results, until it is killed.

python -m tests.proof.soak.dispatch_driver '{"url": "…", "prefix": "…", "notes": "…"}'
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from spark_bull.spark.platform.requirements import start_query
from tests.proof.producers import Place, once
from tests.proof.soak.audit import COLUMNS, TIMES
from tests.proof.soak.programs import ALL_QUEUES, FRAME_ROWS, is_over
from tests.proof.soak.spark import options_of, place_of, session

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


def main(plan: dict[str, str]) -> None:
    place = place_of(plan)
    spark = session(3)
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


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
