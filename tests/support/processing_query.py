"""A streaming query that claims the jobs of a queue, and processes its batches with `process_batch`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_bull import process_batch
from spark_bull.spark.platform.requirements import start_query


@contextmanager
def processing_query(
    spark: SparkSession,
    processor: Callable[[DataFrame], DataFrame],
    checkpoint: Path | str,
    options: Mapping[str, Any],
    *,
    queue: str = "q",
    payload_schema: str | None = None,
    settle: Mapping[str, Any] | None = None,
    **claim: Any,
) -> Iterator[StreamingQuery]:
    """Runs the query in the block. options: of both modes; settle, claim: further ones of each."""
    jobs = spark.readStream.format("bull").options(**options, **claim, queue=queue, mode="claim").load()

    def batches(batch: DataFrame, _: int) -> None:
        given = {**options, **(settle or {})}
        process_batch(batch, processor, queue=queue, payload_schema=payload_schema, options=given)

    writer = jobs.writeStream.foreachBatch(batches).option("checkpointLocation", str(checkpoint))
    query = start_query(writer.start)
    try:
        yield query
    finally:
        query.stop()
