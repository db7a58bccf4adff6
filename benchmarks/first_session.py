"""Uses data sources one after the other in a fresh session: first_session.py write|read|stream FORMAT,… URL

Prints one JSON object per use: wall-clock time and CPU time of the session's JVM and Python processes, s.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Final

from pyspark.sql import SparkSession

from benchmarks.probes import adopt_orphans, cpu_of
from benchmarks.sides import QUEUE

JOBS: Final = 10


@dataclass(frozen=True)
class Use:
    seconds: float
    jvm_cpu: float
    python_cpu: float


def write(spark: SparkSession, options: Mapping[str, str], source: str) -> None:
    rows = spark.range(JOBS).selectExpr("to_json(struct(id)) AS data")
    rows.write.format(source).options(**options).mode("append").save()


def read(spark: SparkSession, options: Mapping[str, str], source: str) -> None:
    spark.read.format(source).options(**options).load().select("id", "data").collect()


def stream(spark: SparkSession, options: Mapping[str, str], source: str) -> None:
    """One query over what is there. Starts before the first job that has finished."""
    rows = spark.readStream.format(source).options(**options, startingOffsets="earliest").load().select("id", "data")
    rows.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination()


KINDS: Final[Mapping[str, Callable[[SparkSession, Mapping[str, str], str], None]]] = {
    "write": write,
    "read": read,
    "stream": stream,
}


def measured(act: Callable[[], None]) -> Use:
    before, started = cpu_of(os.getpid()), time.perf_counter()
    act()
    seconds, after = time.perf_counter() - started, cpu_of(os.getpid())
    return Use(seconds, after.jvm - before.jvm, after.python - before.python)


def main() -> None:
    kind, sources, url = sys.argv[1:]
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    adopt_orphans()
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    options = {"queue": QUEUE, "url": url}
    for source in sources.split(","):
        use = partial(KINDS[kind], spark, options, source)
        print(json.dumps(asdict(measured(use))), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
