"""A driver whose query claims the jobs of the queue `q`, and settles them with their numbers, until it is killed.

python -m tests.support.claiming_driver '{"checkpoint": "…", "url": "…", "prefix": "…"}'
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

import spark_bull
from spark_bull.spark.platform.query_start import start_query
from tests.support.driver_process import DriverProcess

LOCK_MS = 3_000


class ClaimingDriver(DriverProcess):
    """This driver in a separate process."""

    def __init__(self, log: Path, **plan: Any) -> None:
        super().__init__(log, __name__, **plan)


def start(spark: SparkSession, checkpoint: str, **options: str) -> StreamingQuery:
    slowly = f.udf(lambda n: time.sleep(0.002) or n, "int")  # type: ignore[func-returns-value]
    bull = {**options, "queue": "q"}
    jobs = spark.readStream.format("bull").options(**bull, mode="claim", maxJobsPerTrigger=200, lockMs=LOCK_MS).load()
    settled = jobs.select("id", "token", slowly(f.get_json_object("data", "$.n").cast("int")).alias("returnvalue"))
    writer = settled.writeStream.format("bull").options(**bull, mode="settle", checkpointLocation=checkpoint)
    return start_query(writer.start)


def main(plan: dict[str, Any]) -> None:
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark_bull.register(spark)
    start(spark, **plan).awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
