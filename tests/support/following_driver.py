"""A driver whose Worker adds follow-ups with the engine `stream`, until it is killed.

python -m tests.support.following_driver '{"checkpoint": "…", "url": "…", "prefix": "…"}'

Each job of the queue `q` has one follow-up in the same queue, and one in the queue `next`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_bull import Worker
from tests.support.driver_process import DriverProcess


class FollowingDriver(DriverProcess):
    """This driver in a separate process."""

    def __init__(self, log: Path, **plan: Any) -> None:
        super().__init__(log, __name__, **plan)


def follow(jobs: DataFrame) -> DataFrame:
    """Follow-ups have none themselves."""
    data = f.struct(f.col("data.n").alias("of"))
    own, other = (f.struct(data.alias("data"), queue.alias("queue")) for queue in (f.lit("q"), f.lit("next")))
    then = f.when(f.col("data.of").isNull(), f.array(own, other))
    return jobs.select("id", "token", f.lit(1).alias("returnvalue"), then.alias("then"))


def following_worker(spark: SparkSession, **plan: Any) -> Worker:
    settings = {"payload_schema": "n LONG, of LONG", "max_jobs_per_trigger": 20, "progress": False}
    rescue = {"lock_ms": 3_000, "check_ms": 500, "max_stalled": 1_000}
    return Worker(spark, "q", follow, engine="stream", **settings, **rescue, **plan)


def main(plan: dict[str, Any]) -> None:
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    with following_worker(spark, **plan) as worker:
        worker.await_termination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
