"""Who processes: the Node and Python libraries, and workers of ours. When the block begins, they are ready."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_bull import Worker

QUEUE = "bench"
SLOTS = 2
#: Of the stream engine: large batches, as what a batch costs beside its jobs is the same for all.
BATCH_JOBS = 50_000
PEERS = Path(__file__).parent / "peers"
#: The payload that the queue is filled with, for those that parse it by a schema.
PAYLOAD = "id BIGINT, carrier STRING, origin STRING, note STRING, delay INT, ratio DOUBLE"
START_TIMEOUT_S = 60.0
END_TIMEOUT_S = 10.0

#: Works on QUEUE of the server with this URL until the block is left.
Working = Callable[[str], AbstractContextManager[None]]


def peers(program: str, processes: int, concurrency: int, kind: str = "noop") -> Working:
    """So many processes of a program in peers/, each with so many jobs at a time. kind: noop or clock."""
    runtime = "node" if program.endswith(".js") else sys.executable

    @contextmanager
    def working(url: str) -> Iterator[None]:
        command = [runtime, str(PEERS / program), url, QUEUE, str(concurrency), kind]
        with ExitStack() as stack:
            started = [stack.enter_context(speaking(command)) for _ in range(processes)]
            for peer in started:
                peer.expect("ready")
            yield

    return working


class Speaker:
    """A process that says a word when something is done, and hears lines."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def expect(self, word: str) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line == word, f"expected {self._process.args!r} to say {word!r}, got {line!r}"

    def tell(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()


@contextmanager
def speaking(command: list[str]) -> Iterator[Speaker]:
    """Runs a process that ends when its standard input does."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Speaker(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()


def function(spark: SparkSession, kind: str = "noop", slots: int = SLOTS, **options: Any) -> Working:
    """Our loop engine with a function of a job. kind: noop or clock."""

    # Inside a function, so that they travel to the executors as they are: these needn't find this file.
    def noop(_job: Any) -> None:
        return None

    def clock(_job: Any) -> float:
        return time.monotonic_ns() / 1e6

    return _ours(spark, {"noop": noop, "clock": clock}[kind], slots=slots, **options)


def vectorised(spark: SparkSession, **options: Any) -> Working:
    """Our loop engine with a pandas UDF over the parsed payloads."""

    @f.pandas_udf("string")
    def noop(payload: pd.DataFrame) -> pd.Series:
        return pd.Series([None] * len(payload))

    return _ours(spark, noop, payload_schema=PAYLOAD, slots=SLOTS, **options)


def stream(spark: SparkSession, **options: Any) -> Working:
    """Our stream engine."""

    def noop(jobs: DataFrame) -> DataFrame:
        return jobs.select("id", "token", f.lit(None).cast("string").alias("returnvalue"))

    # Each micro-batch has a cost of its own, whatever it holds.
    return _ours(spark, noop, engine="stream", max_jobs_per_trigger=50_000, **options)


def _ours(spark: SparkSession, processor: Any, **options: Any) -> Working:
    @contextmanager
    def working(url: str) -> Iterator[None]:
        worker = Worker(spark, QUEUE, processor, url=url, progress=False, **options)
        with worker:
            deadline = time.monotonic() + START_TIMEOUT_S
            while worker.status().slots < options.get("slots", 1):
                assert time.monotonic() < deadline, f"expected all slots to start, got {worker.status()}"
                time.sleep(0.01)
            yield
            status = worker.status()
            assert (status.failed, status.lost, status.restarts) == (0, 0, 0), f"expected no mishap, got {status}"

    return working
