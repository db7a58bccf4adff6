"""How many tasks Spark runs at the same time."""

from __future__ import annotations

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from pyspark.sql import functions as f


def is_remote(spark: SparkSession) -> bool:
    """Whether this is a session of Spark Connect, which has no SparkContext."""
    return getattr(spark, "sparkContext", None) is None


def tasks_at_once(spark: SparkSession) -> int:
    """Returns how many tasks the executors of this moment run at the same time; 0: there is no executor yet."""
    context = spark.sparkContext._jsc.sc()
    try:
        return int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))
    except Py4JError:
        # These methods are not public: a platform may refuse them.
        return parallelism(spark)


def parallelism(spark: SparkSession) -> int:
    """Returns the default parallelism of a session: the number of cores, unless it is configured.

    Spark Connect does not expose it, but splits a range into as many partitions.
    """
    if not is_remote(spark):
        return int(spark.sparkContext.defaultParallelism)
    partitions = spark.range(1 << 16).select(f.spark_partition_id().alias("partition")).distinct()
    return partitions.count()
