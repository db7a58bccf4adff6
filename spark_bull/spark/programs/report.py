"""Runs SQL over the jobs of queues, or counts them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession


def report(spark: SparkSession, options: Mapping[str, str], queries: Sequence[str]) -> Iterator[DataFrame]:
    """Yields the results of queries over the view `jobs`; without queries, the counts by state.

    options: the options of the read.
    """
    bull = spark.read.format("bull").options(**options)
    if not queries:
        yield bull.option("view", "counts").load().where("jobs > 0").orderBy("queue", "state")
        return
    bull.load().createOrReplaceTempView("jobs")
    yield from (spark.sql(query) for query in queries)
