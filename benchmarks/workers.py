"""The workers of the Node and Python libraries and of spark_bull. They are connected when the block begins."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_bull import Worker
from tests.support.drivers import processing_query

QUEUE = "bench"
SLOTS = 2
PEERS = Path(__file__).parent / "peers"
#: Schema of the payload.
PAYLOAD = "id BIGINT, carrier STRING, origin STRING, note STRING, delay INT, ratio DOUBLE"
#: The kind of functions that run until their job is cancelled.
CANCELLED = "until cancelled"
START_TIMEOUT_S = 60.0
END_TIMEOUT_S = 10.0

#: Processes QUEUE of the server with this URL during the block.
Working = Callable[[str], AbstractContextManager[None]]


def peers(program: str, processes: int, concurrency: int, kind: str = "noop") -> Working:
    """Runs processes of a program in peers/ with this concurrency. kind: noop, clock or wait."""
    runtime = "node" if program.endswith(".js") else sys.executable

    @contextmanager
    def working(url: str) -> Iterator[None]:
        command = [runtime, str(PEERS / program), url, QUEUE, str(concurrency), kind]
        with ExitStack() as stack:
            started = [stack.enter_context(peer_process(command)) for _ in range(processes)]
            for peer in started:
                peer.expect("ready")
            yield

    return working


class Peer:
    """A process that reports steps as lines on standard output, and reads commands from standard input."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def line(self) -> str:
        """Returns the next line that the process prints."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def expect(self, word: str) -> None:
        line = self.line()
        assert line == word, f"expected {self._process.args!r} to print {word!r}, got {line!r}"

    def send(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()


@contextmanager
def peer_process(command: list[str]) -> Iterator[Peer]:
    """Runs a process that exits when its standard input is closed."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Peer(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()


def function(spark: SparkSession, kind: str = "noop", slots: int = SLOTS, **options: Any) -> Working:
    """Runs slots with a function of a job.

    kind: noop; clock; wait (100 ms); wait, coroutine; tenant (20 ms, then the time); or until cancelled, also as a
    coroutine, which writes the time at which it is cancelled to the file that the job names.
    """

    # Local functions are pickled by value: executors need not import this module.
    def noop(_job: Any) -> None:
        return None

    def clock(_job: Any) -> float:
        return time.monotonic_ns() / 1e6

    def wait(_job: Any) -> None:
        time.sleep(0.1)

    async def wait_in_loop(_job: Any) -> None:
        await asyncio.sleep(0.1)

    def tenant(_job: Any) -> float:
        time.sleep(0.02)
        return time.monotonic_ns() / 1e6

    def until_cancelled(job: Any) -> None:
        Path(job.data["started"]).touch()
        try:
            while True:
                time.sleep(0.001)
        finally:
            Path(job.data["ended"]).write_text(str(time.monotonic_ns()))

    async def until_cancelled_in_loop(job: Any) -> None:
        Path(job.data["started"]).touch()
        try:
            await asyncio.Event().wait()
        finally:
            Path(job.data["ended"]).write_text(str(time.monotonic_ns()))

    functions = {
        "noop": noop,
        "clock": clock,
        "wait": wait,
        "wait, coroutine": wait_in_loop,
        "tenant": tenant,
        CANCELLED: until_cancelled,
        f"{CANCELLED}, coroutine": until_cancelled_in_loop,
    }
    return _ours(spark, functions[kind], fails=kind.startswith(CANCELLED), slots=slots, **options)


def frames(spark: SparkSession, way: str, kind: str) -> Working:
    """Calls a function of DataFrames. way: slot or query. kind: noop; join, which parses and joins the payloads."""

    def noop(jobs: DataFrame) -> DataFrame:
        return jobs.select("id", "token", f.lit(None).cast("string").alias("returnvalue"))

    def join(jobs: DataFrame) -> DataFrame:
        carriers = spark.createDataFrame([("UA", 1), ("AA", 2)], "carrier STRING, rank INT")
        joined = jobs.join(f.broadcast(carriers), jobs.data.carrier == carriers.carrier, "left")
        return joined.select("id", "token", f.struct("rank", "data.delay").alias("returnvalue"))

    processor, schema = {"noop": (noop, None), "join": (join, PAYLOAD)}[kind]
    if way == "slot":
        return _ours(spark, processor, payload_schema=schema)

    @contextmanager
    def working(url: str) -> Iterator[None]:
        with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            options = {"url": url}
            with processing_query(spark, processor, folder, options, queue=QUEUE, payload_schema=schema) as query:
                yield
                assert query.isActive, f"expected the query to go on, got {query.exception()}"

    return working


def _ours(spark: SparkSession, processor: Any, *, fails: bool = False, **options: Any) -> Working:
    """fails: whether the jobs fail."""

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
            assert (status.failed > 0, status.lost, status.restarts) == (fails, 0, 0), (
                f"expected {'' if fails else 'no '}failed jobs and no restart, got {status}"
            )

    return working
