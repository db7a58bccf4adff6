"""The application that lives through the faults: dispatches without a pause, processes and collects.

    spark-submit --py-files spark_bull.zip application.py URL QUEUE COMMANDS RESULTS

It prints a line of JSON per command of the file COMMANDS: `write` begins to dispatch, `pause` ends that and prints the
rows of acknowledged and of failed writes, `collected` the numbers of results and of their jobs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from select import select
from typing import Any

from pyspark.sql import SparkSession

import spark_bull
from spark_bull.spark.platform.requirements import start_query

ROWS = 100
#: Between two writes, s.
PAUSE_S = 0.5


class Writer:
    """Dispatches rows with consecutive numbers."""

    def __init__(self, spark: SparkSession, options: dict[str, str]) -> None:
        self._spark, self._options = spark, options
        self._next = 0
        self.acknowledged: list[int] = []
        self.failed: list[int] = []

    def write(self) -> None:
        """Writes the next rows."""
        numbers = range(self._next, self._next + ROWS)
        self._next += ROWS
        rows = self._spark.range(numbers.start, numbers.stop, 1, 4).withColumnRenamed("id", "n")
        try:
            rows.write.format("bull").options(**self._options).mode("append").save()
        except Exception as error:
            self.failed += numbers
            print(f"a write has failed: {error}", file=sys.stderr, flush=True)
            return
        self.acknowledged += numbers


def commands(file: Path) -> Iterator[str]:
    """The commands of a pipe, until its writer closes it; after `write`, an empty one whenever none has come."""
    command = b"pause"
    with file.open("rb", buffering=0) as lines:
        while True:
            writes = command == b"write"
            if writes and not select([lines], [], [], PAUSE_S)[0]:
                yield ""
            elif line := lines.readline():
                command = line.strip()
                yield command.decode()
            else:
                return


def main(url: str, queue: str, file: str, results: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    spark_bull.register(spark)
    options = {"url": url, "queue": queue, "protocol": "bullmq"}
    read = spark.readStream.format("bull").options(**options).load().select("id", "state")
    stream = read.writeStream.format("json").option("path", results).option("checkpointLocation", f"{results}.log")
    query = start_query(stream.trigger(processingTime="1 second").start)
    writer = Writer(spark, options)
    with spark_bull.Worker(spark, queue=queue, processor=lambda job: job.data["n"], slots=2, url=url) as worker:
        for command in commands(Path(file)):
            said: Any = None
            if not command:
                writer.write()
                continue
            if command == "pause":
                failure = query.exception()
                said = {"acknowledged": writer.acknowledged, "failed": writer.failed, "worker": worker.status().state}
                said["collect"] = str(failure)[-500:] if failure else None
            elif command == "collected":
                rows = spark.read.schema("id STRING").json(results)
                said = [rows.count(), rows.distinct().count()]
            print("reply", json.dumps(said), flush=True)
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
