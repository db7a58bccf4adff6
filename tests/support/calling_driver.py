"""A driver that calls a queue for rows, while the Python processes of its first attempts are killed if it is `dying`.

python -m tests.support.calling_driver '{"url": "…", "prefix": "…", "rows": 500, "found": "…", "dying": true}'

It writes the results to the file `found`, as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

import spark_bull

Function = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Dying:
    """A DataFrame whose functions kill their process in the first attempt of each task, after some batches."""

    def __init__(self, frame: DataFrame) -> None:
        self.schema, self._frame = frame.schema, frame

    def select(self, *columns: Column | str) -> Dying:
        return Dying(self._frame.select(*columns))

    def mapInArrow(self, function: Function, schema: StructType) -> DataFrame:
        def dying(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            context = TaskContext.get()
            for number, batch in enumerate(function(batches)):
                if number == 2 and context is not None and context.attemptNumber() == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                yield batch

        return self._frame.mapInArrow(dying, schema)


def main(plan: dict[str, Any]) -> None:
    # Two attempts of each task.
    spark = SparkSession.builder.master("local[2,2]").config("spark.ui.enabled", "false").getOrCreate()
    frame = spark.range(plan["rows"]).repartition(2)
    rows = Dying(frame) if plan["dying"] else frame
    options = {"url": plan["url"], "prefix": plan["prefix"], "protocol": "bullmq"}
    found = spark_bull.call(rows, "q", in_flight=100, **options)  # type: ignore[arg-type]
    Path(plan["found"]).write_text(json.dumps([[row["id"], row["error"], row["result"]] for row in found.collect()]))
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
