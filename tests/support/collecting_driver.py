"""A driver that collects the finished jobs of queues, each into its own Parquet table, until it ends or is killed.

python -m tests.support.collecting_driver '{"folder": "…", "trigger": {"availableNow": true}, "queues": {"mail": {…}}}'

FOLDER/QUEUE/table and FOLDER/QUEUE/checkpoint belong to one query; `queues` gives the options of each.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import spark_bull
from spark_bull.spark.platform.query_start import is_late, start_query
from tests.support.driver_process import DriverProcess

LOOK_S = 0.2


class CollectingDriver(DriverProcess):
    """This driver in a separate process."""

    def __init__(self, log: Path, **plan: Any) -> None:
        super().__init__(log, __name__, **plan)


def collect(
    spark: SparkSession, folder: Path, trigger: Mapping[str, Any], queue: str, raw: Mapping[str, str]
) -> StreamingQuery:
    jobs = spark.readStream.format("bull").options(queue=queue, **raw).load()
    writer = jobs.writeStream.format("parquet").trigger(**trigger)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    return start_query(lambda: writer.start(str(folder / "table")))


def collect_all(spark: SparkSession, folder: str, trigger: Mapping[str, Any], queues: Mapping[str, Any]) -> None:
    """Starts the queries one after the other, and returns when all have ended by themselves."""
    queries: dict[str, StreamingQuery] = {}
    for queue, raw in queues.items():
        print("starting the query of", queue, flush=True)
        queries[queue] = collect(spark, Path(folder) / queue, trigger, queue, raw)
    running = set(queries)
    while running:
        time.sleep(LOOK_S)
        for queue in [queue for queue in running if not queries[queue].isActive]:
            error = queries[queue].exception()
            if error is None:
                running.remove(queue)
            elif is_late(error):
                queries[queue] = collect(spark, Path(folder) / queue, trigger, queue, queues[queue])
            else:
                raise error


def main(plan: Mapping[str, Any]) -> None:
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark_bull.register(spark)
    collect_all(spark, **plan)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
