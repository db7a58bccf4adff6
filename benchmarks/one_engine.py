"""A worker in a session of its own: one_engine.py ENGINE PROCESSOR URL QUEUE [OPTION=VALUE …]

ENGINE: stream or loop. PROCESSOR: function, of a job (loop only), udf, or frame; they do nothing. The options are
arguments of Worker, in JSON. Prints "ready" when the worker has started, and ends with its standard input. Imports no
other benchmark, as it also measures other versions of the package.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import StringType

from spark_bull import Worker

#: The payloads of `filling.payload`.
PAYLOAD = "id BIGINT, carrier STRING, origin STRING, note STRING, delay INT, ratio DOUBLE"


def function(_job: Any) -> None:
    return None


@pandas_udf(StringType())  # type: ignore[call-overload, untyped-decorator, unused-ignore]
def udf(payload: pd.DataFrame) -> pd.Series:
    return pd.Series([None] * len(payload))


def frame(jobs: DataFrame) -> DataFrame:
    return jobs.select("id", "token", f.lit(None).cast("string").alias("returnvalue"))


def main() -> None:
    engine, processor, url, queue, *options = sys.argv[1:]
    given = {name: json.loads(value) for name, _, value in (option.partition("=") for option in options)}
    session = SparkSession.builder.master("local[2]").appName("benchmark")
    quiet: dict[str, Any] = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    spark = session.config(map=quiet).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    chosen = {"function": function, "udf": udf, "frame": frame}[processor]
    if processor == "udf":
        given["payload_schema"] = PAYLOAD
    with Worker(spark, queue, chosen, url=url, engine=engine, progress=False, **given) as worker:
        print("ready", flush=True)
        sys.stdin.read()
        status = worker.status()
        assert (status.failed, status.lost, status.restarts) == (0, 0, 0), f"expected no failed jobs, got {status}"
    spark.stop()


if __name__ == "__main__":
    main()
