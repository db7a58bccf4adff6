"""Processes jobs of queues on the executors with a Python function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from spark_bull.core.model.guards import Guard
from spark_bull.run.worker.program import Functions, arguments_of
from spark_bull.spark.work.worker import Worker


def spark_worker(
    spark: SparkSession,
    queues: Sequence[str],
    functions: Functions,
    options: Mapping[str, Any],
    *,
    weights: Mapping[str, int],
    env: Mapping[str, str],
    guards: Sequence[Guard],
) -> Worker:
    """Returns a worker that has not been started. Call `check` before the session is created.

    The functions are imported here, as @udf and @pandas_udf may need the session, which adds files of --py-files.
    """
    arguments = arguments_of(options) | functions.imported()
    return Worker(spark, queues=queues, weights=weights, env=env or None, guards=guards, **arguments)
