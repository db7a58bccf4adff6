"""The application that lives through the faults: dispatches without a pause, processes and collects.

    spark-submit --py-files spark_bull.zip application.py URL QUEUE ADDRESS PORT RUNS RESULTS

It connects to ADDRESS, and replies to each command with a line of JSON: `write` begins to dispatch, `pause` ends that
and tells the rows of acknowledged and of failed writes, `results` tells the ids of collected jobs, and `try` the errors
of one more write and of one more worker. A file per host in the folder RUNS gets a line for each run of a job.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from select import select
from typing import Any

from pyspark.sql import SparkSession

import spark_bull
from spark_bull.spark.platform.requirements import start_query

ROWS = 50
#: Between two writes, s.
PAUSE_S = 0.5
#: How long a job runs, s.
RUN_S = 0.02


class Writer:
    """Dispatches rows with consecutive numbers, every other one with a delay."""

    def __init__(self, spark: SparkSession, options: dict[str, str]) -> None:
        self._spark, self._options = spark, options
        self._next = 0
        self.acknowledged: list[list[int]] = []
        self.failed: list[list[int]] = []

    def write(self) -> str | None:
        """Writes the next rows; returns the error, if there is one."""
        numbers = [*range(self._next, self._next + ROWS)]
        self._next += ROWS
        rows = self._spark.range(numbers[0], numbers[-1] + 1, 1, 2).selectExpr("id AS n", "id % 2 * 1000 AS delay")
        try:
            rows.write.format("bull").options(**self._options).mode("append").save()
        except Exception as error:
            self.failed.append(numbers)
            print(f"a write has failed: {error}", file=sys.stderr, flush=True)
            return str(error)
        self.acknowledged.append(numbers)
        return None


def processor(folder: str) -> Callable[[spark_bull.RunningJob], str]:
    """Returns a processor whose result is the host on which it has run."""

    def run(job: spark_bull.RunningJob) -> str:
        host = os.environ["SPARK_LOCAL_IP"]
        with Path(folder, host).open("a") as runs:
            runs.write(f"{job.id} {time.time()}\n")
        time.sleep(RUN_S)
        return host

    return run


def error_of_worker(spark: SparkSession, url: str) -> str | None:
    """The error of a worker, which ends by itself."""
    worker = spark_bull.Worker(spark, queue="unreached", processor=str, slots=1, url=url)
    try:
        with worker:
            worker.await_termination()
    except spark_bull.SparkBullError as error:
        return str(error)
    return None


def commands(connection: socket.socket) -> Iterator[str]:
    """The commands that come, until the connection ends; after `write`, an empty one whenever none has come."""
    command = b"pause"
    with connection.makefile("rb", buffering=0) as lines:
        while True:
            if command == b"write" and not select([connection], [], [], PAUSE_S)[0]:
                yield ""
            elif line := lines.readline():
                command = line.strip()
                yield command.decode()
            else:
                return


def main(url: str, queue: str, address: str, port: str, runs: str, results: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    spark_bull.register(spark)
    options = {"url": url, "queue": queue, "protocol": "bullmq"}
    read = spark.readStream.format("bull").options(**options).load().select("id")
    stream = read.writeStream.format("json").option("path", results).option("checkpointLocation", f"{results}.log")
    query = start_query(stream.trigger(processingTime="1 second").start)
    writer = Writer(spark, options)
    with (
        spark_bull.Worker(spark, queue=queue, processor=processor(runs), slots=2, url=url) as worker,
        socket.create_connection((address, int(port))) as connection,
    ):
        for command in commands(connection):
            said: Any = None
            if not command:
                writer.write()
                continue
            if command == "pause":
                states = {"worker": worker.status().state, "collect": str(query.exception() or "")}
                said = {"acknowledged": writer.acknowledged, "failed": writer.failed, **states}
            elif command == "results":
                said = [row.id for row in spark.read.schema("id STRING").json(results).collect()]
            elif command == "try":
                said = [writer.write(), error_of_worker(spark, url)]
            connection.sendall(json.dumps(said).encode() + b"\n")
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
