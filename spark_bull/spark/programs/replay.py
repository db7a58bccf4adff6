"""Adds jobs of a table of files again, such as those that `collect` has written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.spark.programs.dispatch import Dispatched, added

#: Ids that are numbers belong to the queue; the copies have this prefix.
_PREFIX: Final = "replay-"


def replayed(table: DataFrame, condition: str | None) -> DataFrame:
    """The rows for which the condition is true, as rows of a write that adds them again."""
    rows = table.where(condition) if condition else table
    is_number = f.col("id").rlike("^[0-9]+$")
    job_id = f.when(is_number, f.concat(f.lit(_PREFIX), "id")).otherwise(f.col("id"))
    given = [f.col("data"), job_id.alias("jobId")]
    given += [f.col(name) for name in ("name", "priority") if name in table.columns]
    if "opts" in table.columns:
        given.append(f.get_json_object("opts", "$.attempts").cast("int").alias("attempts"))
    return rows.select(*given)


def replay(
    spark: SparkSession,
    path: str,
    file_format: str,
    condition: str | None,
    handle: QueueHandle,
    options: Mapping[str, Any],
) -> Dispatched:
    """Adds the jobs of a table to a queue. options: the options of the write."""
    rows = replayed(spark.read.format(file_format).load(path), condition)
    return added(spark, rows, handle.keys.queue, [handle], options)
