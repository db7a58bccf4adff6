"""Dispatches and processes the flights by Spark alone and by BullMQ in Node alone, one after the other."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from spark_bull.core.embedded import COMPACT_SETTING, EmbeddedRedis
from spark_bull.spark.programs.demo.jobs import dispatch
from spark_bull.spark.programs.demo.place import JOBS, QUEUE, Measured, Place, announce
from spark_bull.spark.programs.demo.workers import completed, measured, node_workers, spark_worker, wait_until_done

_NODE_ADD: Final = Path(__file__).with_name("node_add.js")
#: Both sides have the settings of Redis, as a server has them that nobody has set up for this project.
_SETTINGS: Final = {COMPACT_SETTING: "64"}
#: The jobs as JSON, for Node. delay: ms.
_AS_JSON: Final = f"""
    SELECT to_json(struct(name, data, jobId, unix_millis(runAt) - unix_millis(current_timestamp()) AS delay))
    FROM ({JOBS})
"""


def compare(spark: SparkSession, table: Path, bullmq: Path) -> list[Measured]:
    """Dispatches and processes the flights of a Parquet table on a server of each side, and prints the ratios.

    Spark includes the read of the table; Node has all jobs in memory, in one process. bullmq: the folder of the Node
    package; without it there is no comparison.
    """
    announce("10. The same flights, dispatched and processed by Spark alone, then by BullMQ in Node alone")
    if shutil.which("node") is None or not bullmq.is_dir():
        print("    (Node or its package bullmq is not installed)")
        return []
    ours = _by_spark(spark, table)
    node = _by_node(spark, table, bullmq)
    for own, other in zip(ours, node, strict=True):
        assert own.jobs == other.jobs, f"expected both to {own.verb} {own.jobs:,} jobs, got {other.jobs:,}"
        print(f"    {own.verb}: {own.rate:,.0f} jobs/s, {own.rate / other.rate:.1f} x Node's {other.rate:,.0f}")
    return [*ours, *node]


def _by_spark(spark: SparkSession, table: Path) -> list[Measured]:
    with _server() as place:
        added = dispatch(spark, table, place)
        with spark_worker(spark, place):
            wait_until_done(place)
        done = measured(completed(spark, place), "Spark alone, pandas UDF")
    return [Measured("dispatch", added.jobs, added.seconds, "Spark alone, exactly once"), done]


def _by_node(spark: SparkSession, table: Path, bullmq: Path) -> list[Measured]:
    folder = table.parent / "for Node"
    spark.read.parquet(str(table)).createOrReplaceTempView("input")
    spark.sql(_AS_JSON).write.text(str(folder))
    with _server() as place:
        command = ["node", str(_NODE_ADD), place.urls[0], QUEUE, str(folder), str(bullmq.resolve())]
        added = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        with node_workers(place, table.parent, bullmq):
            wait_until_done(place)
        done = measured(completed(spark, place), "Node alone, one process, concurrency 50")
    return [Measured("dispatch", added["jobs"], added["seconds"], "Node alone, addBulk, one process"), done]


@contextmanager
def _server() -> Iterator[Place]:
    with EmbeddedRedis(_SETTINGS) as server:
        yield Place([server.url])
