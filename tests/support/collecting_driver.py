"""A driver that collects the finished jobs of queues, each into its own Parquet table, until it ends or is killed.

python -m tests.support.collecting_driver '{"folder": "…", "trigger": {"availableNow": true}, "queues": {"mail": {…}}}'

FOLDER/QUEUE/table and FOLDER/QUEUE/checkpoint belong to one query; `queues` gives the options of each.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import spark_bull
from spark_bull.spark.query_start import is_late, start_query
from tests.support.wait import wait_until

ROOT = Path(__file__).parents[2]
LOOK_S = 0.2
#: Interval of the printed status of its queries, s.
REPORT_S = 30


class CollectingDriver:
    """The driver in a separate process, whose output is written to a file."""

    def __init__(self, log: Path, **plan: Any) -> None:
        self._log = log
        command = [sys.executable, "-m", "tests.support.collecting_driver", json.dumps(plan)]
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command, cwd=ROOT, start_new_session=True, stdout=output, stderr=subprocess.STDOUT
            )

    def check(self) -> None:
        """Fails when the driver has ended."""
        code = self._process.poll()
        assert code is None, f"the driver ended with {code}:\n{self.output()}"

    def finish(self, timeout: float) -> None:
        """Waits until all of its queries have ended by themselves."""
        code = self._process.wait(timeout)
        assert code == 0, f"the driver ended with {code}:\n{self.output()}"

    def kill(self) -> None:
        """Kills the driver, its JVM and their Python processes, and waits until they have ended."""
        for group in self._groups():
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        self._process.wait()
        wait_until(lambda: not self._groups(), "the driver's processes to end")

    def __enter__(self) -> CollectingDriver:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _groups(self) -> set[int]:
        """The running process groups of its session; Spark starts Python processes in a separate group."""
        command = ["ps", "-s", str(self._process.pid), "-o", "stat=,pgid="]
        listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        processes = [line.split() for line in listed.splitlines()]
        return {int(group) for state, group in processes if not state.startswith("Z")}

    def output(self) -> str:
        """The end of its output."""
        return self._log.read_text(errors="replace")[-6000:]


def collect(
    spark: SparkSession, folder: Path, trigger: Mapping[str, Any], queue: str, raw: Mapping[str, str]
) -> StreamingQuery:
    jobs = spark.readStream.format("bull").options(queue=queue, **raw).load()
    writer = jobs.writeStream.format("parquet").trigger(**trigger)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    return start_query(lambda: writer.start(str(folder / "table")))


def main(plan: Mapping[str, Any]) -> None:
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark_bull.register(spark)
    folder, trigger = Path(plan["folder"]), plan["trigger"]
    queries: dict[str, StreamingQuery] = {}
    for queue, raw in plan["queues"].items():
        print(time.strftime("%H:%M:%S"), "starting the query of", queue, flush=True)
        queries[queue] = collect(spark, folder / queue, trigger, queue, raw)
    running, report = set(queries), time.monotonic()
    while running:
        time.sleep(LOOK_S)
        if time.monotonic() >= report:
            report += REPORT_S
            for queue in sorted(running):
                print(time.strftime("%H:%M:%S"), queue, queries[queue].isActive, queries[queue].status, flush=True)
        for queue in [queue for queue in running if not queries[queue].isActive]:
            error = queries[queue].exception()
            if error is None:
                running.remove(queue)
            elif is_late(error):
                queries[queue] = collect(spark, folder / queue, trigger, queue, plan["queues"][queue])
            else:
                raise error


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
