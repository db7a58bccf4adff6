"""Processes the jobs in Spark, and in Node beside it."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import pandas_udf  # type: ignore[attr-defined]

from spark_bull.spark.programs.demo.place import QUEUE, Measured, Place, airports, announce
from spark_bull.spark.work.worker import Worker

_NODE_WORKER: Final = Path(__file__).with_name("node_worker.js")


@contextmanager
def node_workers(place: Place, folder: Path, bullmq: Path) -> Iterator[bool]:
    """Runs a BullMQ worker in Node, or one for each shard, during the block; yields whether it can.

    bullmq: the folder of the Node package.
    """
    if shutil.which("node") is None or not bullmq.is_dir():
        yield False
        return
    places = folder / "airports.json"
    places.write_text(json.dumps(airports()))
    running = [
        subprocess.Popen(
            ["node", str(_NODE_WORKER), url, queue.name, str(places), str(bullmq.resolve())], stdin=subprocess.PIPE
        )
        for url, queue in zip(place.urls, place.queues(), strict=True)
    ]
    try:
        yield True
    finally:
        for worker in running:
            worker.communicate(timeout=30)


def spark_worker(spark: SparkSession, place: Place) -> Worker:
    """A worker that processes the jobs with a pandas UDF on the executors."""
    places = airports()

    @pandas_udf("km DOUBLE, score DOUBLE")  # type: ignore[untyped-decorator]
    def rate(origin: pd.Series, dest: pd.Series, dep_delay: pd.Series) -> pd.DataFrame:
        """Great-circle distance by the haversine formula (R. W. Sinnott, 1984), and a score of the delay."""
        unknown = (np.nan, np.nan)
        lat1, lon1 = np.radians(np.array([places.get(code, unknown) for code in origin])).T
        lat2, lon2 = np.radians(np.array([places.get(code, unknown) for code in dest])).T
        h = np.sin((lat2 - lat1) / 2) ** 2 + np.cos(lat1) * np.cos(lat2) * np.sin((lon2 - lon1) / 2) ** 2
        km = 2 * 6371 * np.arcsin(np.sqrt(h))
        return pd.DataFrame({"km": km, "score": np.tanh(dep_delay / 60) * np.log1p(km)})

    schema = "origin STRING, dest STRING, dep_delay DOUBLE"
    return Worker(spark, QUEUE, rate, payload_schema=schema, worker_name="spark", progress=True, **place.arguments)


def wait_until_done(place: Place) -> None:
    """Waits until no job waits or is active."""
    while any((counts := queue.counts())["wait"] or counts["active"] for queue in place.queues()):
        time.sleep(0.2)


def completed(spark: SparkSession, place: Place) -> DataFrame:
    """The jobs that have completed."""
    columns = "processedBy STRING, returnvalue STRING, processedOn TIMESTAMP, finishedOn TIMESTAMP"
    return spark.read.format("bull").options(**place.options, states="completed").schema(columns).load()


def measured(jobs: DataFrame, what: str) -> Measured:
    """The completed jobs, and the time from the start of the first one to the end of the last one."""
    lasted = "CAST(max(finishedOn) AS DOUBLE) - CAST(min(processedOn) AS DOUBLE)"
    number, seconds = jobs.selectExpr("count(*)", lasted).collect()[0]
    return Measured("process", number, seconds, what)


def process(spark: SparkSession, place: Place, folder: Path, bullmq: Path) -> Measured:
    """Processes the jobs with a pandas UDF on the executors and with BullMQ in Node in parallel."""
    announce(
        "6. Executors process jobs with a pandas UDF, while a BullMQ worker in Node processes others",
        f"""Worker(spark, "{QUEUE}", rate, payload_schema="origin STRING, dest STRING, dep_delay DOUBLE").start()""",
    )
    with node_workers(place, folder, bullmq) as node, spark_worker(spark, place):
        wait_until_done(place)
    if not node:
        print("    (Node or its package bullmq is not installed: Spark processed all jobs)")
    by_worker = """
        SELECT processedBy, count(*) AS jobs, round(avg(get_json_object(returnvalue, '$.km'))) AS km,
               round(avg(get_json_object(returnvalue, '$.score')), 3) AS score
        FROM done GROUP BY processedBy ORDER BY processedBy
    """
    announce("7. Jobs by worker, and their average results", by_worker)
    done = completed(spark, place)
    done.createOrReplaceTempView("done")
    spark.sql(by_worker).show()
    return measured(done, "pandas UDF, beside Node" if node else "pandas UDF")
