"""Dispatches, inspects, processes, and collects: `python all_verbs.py`, with any version of PySpark.

Prints a line per step when all of it has worked. Needs no plugin of pytest and no server: it starts a
Redis of its own, or uses what it is given: `python all_verbs.py URL FOLDER MASTER`.
"""

from __future__ import annotations

import sys
import warnings
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.functions import pandas_udf
from pyspark.sql.types import LongType

import spark_bull
from spark_bull.spark.platform.requirements import start_query
from spark_bull.spark.programs.commands import Table, collect

JOBS = 2_000


@pandas_udf(LongType())
def doubled(n: pd.Series) -> pd.Series:
    return 2 * n


@pandas_udf(LongType())
def doubled_time(at: pd.Series) -> pd.Series:
    return 2 * (at - pd.Timestamp(0, tz="UTC")) // pd.Timedelta(1, "s")


def doubled_rows(jobs: DataFrame) -> DataFrame:
    return jobs.select("queue", "id", "token", f.struct((2 * f.col("data.n")).alias("twice")).alias("returnvalue"))


def process(spark: SparkSession, **worker: Any) -> None:
    with spark_bull.Worker(spark, slots=2, **worker) as running:
        while running.status().completed < JOBS:
            assert not running.await_termination(0.2), "the worker has ended"


def process_batches(bull: dict[str, str], batch: DataFrame, _: int) -> None:
    spark_bull.process_batch(batch, doubled_rows, queue="batches", payload_schema="n LONG", options=bull)


def main(url: str, folder: Path, master: str = "local[2]") -> None:
    spark = SparkSession.builder.master(master).config("spark.ui.enabled", "false").getOrCreate()
    spark_bull.register(spark)
    workers: dict[str, dict[str, Any]] = {
        "function": {"processor": lambda job: 2 * job.data["n"]},
        "udf": {"processor": doubled, "payload_schema": "n LONG"},
        "times": {"processor": doubled_time, "payload_schema": "at TIMESTAMP"},
        "rows": {"processor": doubled_rows, "payload_schema": "n LONG"},
        "names": {"processor": {"rows": doubled_rows, "*": doubled}, "payload_schema": "n LONG"},
    }
    queues = [*workers, "batches"]
    bull = {"url": url, "protocol": "bullmq"}
    payload = f.struct(f.col("id").alias("n"), f.timestamp_seconds("id").alias("at"))
    each_queue = f.explode(f.array(*map(f.lit, queues))).alias("queue")
    rows = spark.range(JOBS).select(each_queue, payload.alias("data"))
    rows.write.format("bull").options(**bull).mode("append").save()
    print("dispatch", flush=True)
    waiting = spark.read.format("bull").options(**bull, queue=",".join(queues))
    for schema, n in {"n LONG": "data.n", "VARIANT": "variant_get(data, '$.n', 'LONG')"}.items():
        sums = waiting.option("payloadSchema", schema).load().groupBy("queue").agg(f.expr(f"sum({n})"))
        assert {row[0]: row[1] for row in sums.collect()} == dict.fromkeys(queues, sum(range(JOBS)))
    print("inspect", flush=True)
    for queue, worker in workers.items():
        process(spark, **bull, **worker, queue=queue)
    print("process in slots", flush=True)
    jobs = spark.readStream.format("bull").options(**bull, queue="batches", mode="claim").load()
    batches = jobs.writeStream.foreachBatch(partial(process_batches, bull)).trigger(availableNow=True)
    query = start_query(batches.option("checkpointLocation", str(folder / "batches")).start)
    query.awaitTermination()
    print("process in batches", flush=True)
    table = Table(str(folder / "results"))
    found = collect(spark, table, {**bull, "queue": ",".join(queues)})
    assert found.jobs == JOBS * len(queues), found
    collect(spark, table, {**bull, "queue": ",".join(queues)})
    results = spark.read.parquet(table.path)
    twice = f.coalesce(f.get_json_object("returnvalue", "$.twice"), "returnvalue").cast("long")
    ids = results.select("queue", "id").distinct().count()
    assert (results.count(), ids) == (found.jobs, found.jobs)
    assert results.select(f.sum(twice)).collect()[0][0] == 2 * sum(range(JOBS)) * len(queues)
    print("collect", flush=True)
    spark.stop()


if __name__ == "__main__":
    warnings.simplefilter("error", FutureWarning)
    if given := sys.argv[1:]:
        main(given[0], Path(given[1]), given[2])
        sys.exit(0)
    with spark_bull.EmbeddedRedis() as redis, TemporaryDirectory() as folder:
        main(redis.url, Path(folder))
    sys.exit(0)
