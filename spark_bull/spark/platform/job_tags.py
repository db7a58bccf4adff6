"""Tags of the Spark jobs that a thread starts, by which any other thread can cancel them.

In a session that is not one of Spark Connect, only its own thread knows a tag of the session; all threads know
a tag of the SparkContext.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from spark_bull.spark.platform.cores import is_remote


def add_tag(spark: SparkSession, tag: str) -> None:
    """Tags the jobs that this thread starts from now on."""
    if is_remote(spark):
        spark.addTag(tag)
    else:
        spark.sparkContext.addJobTag(tag)


def remove_tag(spark: SparkSession, tag: str) -> None:
    """Ends the effect of `add_tag` in this thread."""
    if is_remote(spark):
        spark.removeTag(tag)
    else:
        spark.sparkContext.removeJobTag(tag)


def cancel_tagged(spark: SparkSession, tag: str) -> None:
    """Cancels the jobs with a tag; may be called in any thread."""
    if is_remote(spark):
        spark.interruptTag(tag)
    else:
        spark.sparkContext.cancelJobsWithTag(tag)
