"""A Spark driver that tests kill with its JVM and its Python processes, and a query that processes claimed jobs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import spark_bull
from spark_bull.spark.platform.requirements import start_query
from tests.support.wait import PATIENCE_S, wait_until

ROOT: Final = Path(__file__).parents[2]


class DriverProcess:
    """A driver in a separate process: a module with arguments, the last one `plan` as JSON. `log`: for its output."""

    def __init__(self, log: Path, *program: str, **plan: Any) -> None:
        self._log = log
        command = [sys.executable, "-m", *program, json.dumps(plan)]
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command, cwd=ROOT, start_new_session=True, stdout=output, stderr=subprocess.STDOUT
            )

    @property
    def pid(self) -> int:
        """Its process id, which is also the id of the session of all its processes."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def end_by(self, number: int) -> int:
        """Sends a signal to the driver itself, and waits for its end; returns the exit status."""
        self._process.send_signal(number)
        return self._process.wait(PATIENCE_S)

    def check(self) -> None:
        code = self._process.poll()
        assert code is None, f"the driver ended with {code}:\n{self.output()}"

    def kill(self) -> None:
        """Kills the driver, its JVM and their Python processes, and waits until they have ended."""
        wait_until(self._have_been_killed, "the driver's processes to end")
        self._process.wait()

    def __enter__(self) -> DriverProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _have_been_killed(self) -> bool:
        """Whether none is left of its processes; kills them, and those that have started since the last call."""
        groups = self._groups()
        for group in groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        return not groups

    def _groups(self) -> set[int]:
        """The running process groups of its session; Spark starts Python processes in a separate group."""
        command = ["ps", "-s", str(self._process.pid), "-o", "stat=,pgid="]
        listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        processes = [line.split() for line in listed.splitlines()]
        return {int(group) for state, group in processes if not state.startswith("Z")}

    def output(self) -> str:
        return self._log.read_text(errors="replace")[-6000:]


@contextmanager
def processing_query(
    spark: SparkSession,
    processor: Callable[[DataFrame], DataFrame],
    checkpoint: Path | str,
    options: Mapping[str, Any],
    *,
    queue: str = "q",
    payload_schema: str | None = None,
    settle: Mapping[str, Any] | None = None,
    **claim: Any,
) -> Iterator[StreamingQuery]:
    """Runs a query in the block that claims the jobs of a queue, and processes its batches.

    options: of both modes; settle, claim: further ones of each.
    """
    jobs = spark.readStream.format("bull").options(**options, **claim, queue=queue, mode="claim").load()

    def batches(batch: DataFrame, _: int) -> None:
        given = {**options, **(settle or {})}
        spark_bull.process_batch(batch, processor, queue=queue, payload_schema=payload_schema, options=given)

    writer = jobs.writeStream.foreachBatch(batches).option("checkpointLocation", str(checkpoint))
    query = start_query(writer.start)
    try:
        yield query
    finally:
        query.stop()
