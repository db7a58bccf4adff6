"""Adds the flights as jobs, and queries them."""

from __future__ import annotations

import time
from pathlib import Path

from pyspark.sql import SparkSession

from spark_bull.spark.programs.commands import Source
from spark_bull.spark.programs.commands import dispatch as add_jobs
from spark_bull.spark.programs.demo.place import JOBS, QUEUE, Measured, Place, announce


def dispatch(spark: SparkSession, table: Path, place: Place) -> Measured:
    """Adds the flights as jobs, with a progress bar."""
    handles = [queue.handle for queue in place.queues()]
    done = add_jobs(spark, Source(str(table), "parquet", {}, JOBS), QUEUE, handles, place.options | {"attempts": "3"})
    return Measured("dispatch", done.added, done.seconds, f"exactly once, {done.duplicates} duplicates")


def inspect(spark: SparkSession, place: Place) -> Measured:
    """Queries the queue with SQL."""
    announce(
        "3. The queue is a DataFrame: counts of its states",
        f"""spark.read.format("bull"){place.shown}.option("view", "counts").load()""",
    )
    queue = place.options
    counts = spark.read.format("bull").options(**queue, view="counts").load()
    counts.where("jobs > 0").show()
    jobs = counts.selectExpr("sum(jobs)").collect()[0][0]

    by_carrier = """
        SELECT name AS carrier, count(*) AS jobs, round(avg(get_json_object(data, '$.dep_delay')), 1) AS minutes_late
        FROM jobs GROUP BY name ORDER BY jobs DESC LIMIT 8
    """
    announce("4. SQL over the jobs and their payloads: jobs per carrier, and how late its flights were", by_carrier)
    spark.read.format("bull").options(**queue).schema("name STRING, data STRING").load().createOrReplaceTempView("jobs")
    began = time.monotonic()
    spark.sql(by_carrier).show()
    seconds = time.monotonic() - began

    by_hour = """
        SELECT date_trunc('hour', runAt) AS due, count(*) AS delayed FROM jobs GROUP BY due ORDER BY due
    """
    announce("5. Delayed jobs per hour in which they are due", by_hour)
    delayed = spark.read.format("bull").options(**queue, states="delayed").schema("runAt TIMESTAMP").load()
    delayed.createOrReplaceTempView("jobs")
    spark.sql(by_hour).show()
    return Measured("inspect", jobs, seconds, "SQL over the payloads of all jobs")
