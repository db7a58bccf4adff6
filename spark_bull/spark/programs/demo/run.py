"""Runs the demo: dispatches flights as jobs, inspects them with SQL, processes them in Spark and Node, and collects the
results. Requires no running services.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from spark_bull.core.embedded import EmbeddedRedis
from spark_bull.spark.programs.demo.compared import compare
from spark_bull.spark.programs.demo.jobs import dispatch, inspect
from spark_bull.spark.programs.demo.place import Measured, Place, announce, flights
from spark_bull.spark.programs.demo.results import collect
from spark_bull.spark.programs.demo.workers import process
from spark_bull.spark.programs.session import errors_in_one_line, session


@dataclass(frozen=True)
class Demo:
    """What the demo uses.

    months: the flights of the first months of 2013. shards: number of servers that share the queue. bullmq: folder of
    the Node package. picture: path of the chart, as PNG. compares: whether Spark alone and Node alone do the same.
    """

    months: int
    shards: int
    bullmq: Path
    picture: Path
    compares: bool = False


def run(demo: Demo) -> None:
    """Runs the demo with its own servers and session."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="spark-bull-demo-") as folder, ExitStack() as stack:
        place = Place([stack.enter_context(EmbeddedRedis()).url for _ in range(demo.shards)])
        announce("1. Start temporary Redis servers on free ports", f"EmbeddedRedis()  # {', '.join(place.urls)}")
        table = flights(Path(folder), demo.months)
        announce(
            f"2. Dispatch the flights from New York in the first {demo.months} months of 2013 as jobs; "
            "`spark-bull dispatch` does the same",
            f"""df.write.format("bull").option("url", …){place.shown}.mode("append").save()""",
        )
        with errors_in_one_line(), session("demo") as spark:
            measured = all_verbs(spark, place, table, demo)
            if demo.compares:
                measured += compare(spark, table, demo.bullmq)
    announce("Summary, without the start of Spark")
    for one in measured:
        print(f"    {one}")
    print(f"    picture   {demo.picture}")
    print(f"    demo      {time.monotonic() - began:.0f} s, with the start of Spark")


def all_verbs(spark: SparkSession, place: Place, table: Path, demo: Demo) -> list[Measured]:
    """Runs all verbs on a Parquet table of flights, beside which the results are stored."""
    return [
        dispatch(spark, table, place),
        inspect(spark, place),
        process(spark, place, table.parent, demo.bullmq),
        collect(spark, place, table, table.parent, demo.picture),
    ]
