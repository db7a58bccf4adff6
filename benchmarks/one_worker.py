"""A worker in a session of its own: one_worker.py WAY PROCESSOR URL QUEUE [OPTION=VALUE …]

WAY: slots, a Worker, or query, of batches (frame only). PROCESSOR: function, of a job, udf, or frame; they do nothing.
The options are arguments of Worker, or options of mode=claim, in JSON. Prints "ready" when the worker has started, and
ends with its standard input. Imports no other benchmark, as it also measures other versions of the package.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import StringType

import spark_bull

#: The payloads of `filling.payload`.
PAYLOAD = "id BIGINT, carrier STRING, origin STRING, note STRING, delay INT, ratio DOUBLE"


def function(_job: Any) -> None:
    return None


@pandas_udf(StringType())  # type: ignore[call-overload, untyped-decorator, unused-ignore]
def udf(payload: pd.DataFrame) -> pd.Series:
    return pd.Series([None] * len(payload))


def frame(jobs: DataFrame) -> DataFrame:
    return jobs.select("id", "token", f.lit(None).cast("string").alias("returnvalue"))


@contextmanager
def slots(spark: SparkSession, processor: Any, url: str, queue: str, given: dict[str, Any]) -> Iterator[None]:
    with spark_bull.Worker(spark, queue, processor, url=url, progress=False, **given) as worker:
        yield
        status = worker.status()
        assert (status.failed, status.lost, status.restarts) == (0, 0, 0), f"expected no failed jobs, got {status}"


@contextmanager
def in_batches(spark: SparkSession, processor: Any, url: str, queue: str, given: dict[str, Any]) -> Iterator[None]:
    def batches(batch: DataFrame, _: int) -> None:
        spark_bull.process_batch(batch, processor, queue=queue, options={"url": url})

    spark_bull.register(spark)
    jobs = spark.readStream.format("bull").options(url=url, queue=queue, mode="claim", **given).load()
    with TemporaryDirectory(ignore_cleanup_errors=True) as checkpoint:
        running = jobs.writeStream.foreachBatch(batches).option("checkpointLocation", checkpoint).start()
        yield
        assert running.isActive, f"expected the query to go on, got {running.exception()}"
        running.stop()


def main() -> None:
    way, processor, url, queue, *options = sys.argv[1:]
    given = {name: json.loads(value) for name, _, value in (option.partition("=") for option in options)}
    session = SparkSession.builder.master("local[2]").appName("benchmark")
    quiet: dict[str, Any] = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    spark = session.config(map=quiet).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    chosen = {"function": function, "udf": udf, "frame": frame}[processor]
    if processor == "udf":
        given["payload_schema"] = PAYLOAD
    with {"slots": slots, "query": in_batches}[way](spark, chosen, url, queue, given):
        print("ready", flush=True)
        sys.stdin.read()
    spark.stop()


if __name__ == "__main__":
    main()
