"""The collectors: a stream of spark_bull, Node, Python, and the scripts alone. Each reads all finished jobs."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from redis import Redis

from benchmarks.filling import fill_finished
from benchmarks.probes import cpu_of
from benchmarks.sides import timed
from benchmarks.trials import Processed, Server, completed, cpu_seconds, fresh_server, script_ms
from benchmarks.workers import PEERS, QUEUE, peer_process
from spark_bull.core.dialects.fields import FIELDS, fields_of
from spark_bull.core.queue.collect.result_ledger import ResultLedger

READER = "bench"


@dataclass(frozen=True)
class Collected(Processed):
    """Also the CPU time of the readers, µs per job, by program."""

    python_us: float
    jvm_us: float
    node_us: float

    @property
    def cpu_us(self) -> float:
        """Of all processes, with the server."""
        return self.server_us_per_job + self.python_us + self.jvm_us + self.node_us


@contextmanager
def finished_queue(jobs: int) -> Iterator[Server]:
    """Starts a server and fills it with finished jobs."""
    with fresh_server() as server:
        fill_finished(server.queue, jobs)
        assert completed(server.client) == jobs, f"expected {jobs} completed jobs, got {completed(server.client)}"
        yield server


def by_spark(spark: SparkSession, server: Server, jobs: int, *, with_start: bool = False) -> Collected:
    """Measures the stream to Parquet, from the start of its first batch to the end of its last one; with_start: from
    the start of the query to its end.
    """
    with tempfile.TemporaryDirectory() as folder:

        def collect() -> float:
            query = start(spark, server.url, folder, availableNow=True)
            query.awaitTermination()
            batches = query.recentProgress
            return ended(batches[-1]) - began(batches[0])

        measured = _measured(server.client, jobs, (lambda: timed(collect)) if with_start else collect)
        check_once(spark.read.parquet(f"{folder}/jobs"), jobs)
    _delete_ledger(server)
    return measured


def by_peer(spark: SparkSession, program: str, server: Server, jobs: int) -> Collected:
    """Measures a program in peers/ that writes each job as a line of JSON, from its start signal to its end."""
    runtime = "node" if program.endswith(".js") else sys.executable
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/jobs.json"
        with peer_process([runtime, str(PEERS / program), server.url, QUEUE, str(jobs), path]) as peer:
            peer.expect("ready")

            def collect() -> None:
                peer.send("go")
                peer.expect("done")

            measured = _measured(server.client, jobs, lambda: timed(collect))
        check_once(spark.read.schema("id STRING").json(path), jobs)
    return measured


def by_batch(spark: SparkSession, server: Server, jobs: int) -> Collected:
    """Measures `spark.read` of all columns, which nothing writes."""
    observed = Observation()
    found = spark.read.format("bull").options(url=server.url, queue=QUEUE, states="completed").load()
    found = found.observe(observed, f.count("id").alias("rows"), f.sum(found["id"].cast("long")).alias("sum"))

    def read() -> None:
        found.write.format("noop").mode("overwrite").save()

    measured = _measured(server.client, jobs, lambda: timed(read))
    expected = {"rows": jobs, "sum": jobs * (jobs + 1) // 2}
    assert observed.get == expected, f"expected jobs 1 to {jobs}, got {observed.get}"
    return measured


def by_discover(server: Server, jobs: int) -> Collected:
    """Measures the scripts that discover finished jobs, called by one client."""
    ledger = _ledger(server)
    measured = _measured(server.client, jobs, lambda: timed(lambda: _discover(ledger)))
    _delete_ledger(server)
    return measured


def by_read(server: Server, jobs: int) -> Collected:
    """Measures the scripts that read all fields of discovered jobs, called by one client."""
    ledger = _ledger(server)
    end, rows = _discover(ledger), ledger.rows(fields_of(list(FIELDS)))
    assert end == jobs, f"expected {jobs} jobs to be found, got {end}"

    def read() -> None:
        position = 0
        while position < end:
            position, chunk = rows.read(position, end)
            assert chunk.rows, f"expected entries at position {position}"

    measured = _measured(server.client, jobs, lambda: timed(read))
    _delete_ledger(server)
    return measured


def _ledger(server: Server) -> ResultLedger:
    ledger = ResultLedger(server.queue.handle, READER, owner="bench")
    assert ledger.open("earliest", create=True).state == "ok"
    return ledger


def _discover(ledger: ResultLedger) -> int:
    """Discovers all jobs; returns the position after the last one."""
    found = ledger.discover()
    while found.more:
        found = ledger.discover()
    return found.end


def _delete_ledger(server: Server) -> None:
    """Deletes the ledger, so that the next measurement starts without one."""
    server.client.unlink(*server.queue.handle.keys.results(READER).values())


def _measured(client: Redis, jobs: int, collect: Callable[[], float]) -> Collected:
    """Measures `collect`, which returns its duration in s."""
    client.slowlog_reset()
    server, before = cpu_seconds(client), cpu_of(os.getpid())
    seconds = collect()
    server, after = cpu_seconds(client) - server, cpu_of(os.getpid())
    readers = (after.python - before.python, after.jvm - before.jvm, after.node - before.node)
    return Collected(seconds, server / jobs * 1e6, *script_ms(client), *(used / jobs * 1e6 for used in readers))


# The query and its results.


def start(spark: SparkSession, url: str, folder: str, **trigger: Any) -> StreamingQuery:
    """Starts a query that collects QUEUE into `folder`/jobs with default options."""
    options = {"url": url, "queue": QUEUE, "readerId": READER, "startingOffsets": "earliest"}
    writer = spark.readStream.format("bull").options(**options).load().writeStream.format("parquet").trigger(**trigger)
    return writer.option("checkpointLocation", f"{folder}/checkpoint").start(f"{folder}/jobs")


@contextmanager
def collects(spark: SparkSession, url: str, jobs: int) -> Iterator[Callable[[], None]]:
    """Returns a function that collects the finished jobs of QUEUE, `jobs` of them, into a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:

        def run() -> None:
            query = start(spark, url, folder, availableNow=True)
            query.awaitTermination()
            rows = sum(batch["numInputRows"] for batch in query.recentProgress)
            assert rows == jobs, f"expected {jobs} collected jobs, got {rows}"

        yield run


def began(batch: Any) -> float:
    """Returns the start of a batch by its query progress, s since 1970."""
    return datetime.fromisoformat(batch["timestamp"].replace("Z", "+00:00")).timestamp()


def ended(batch: Any) -> float:
    ms: int = batch["durationMs"]["triggerExecution"]
    return began(batch) + ms / 1000


def check_once(frame: DataFrame, jobs: int) -> None:
    """Checks that all jobs are in the frame exactly once."""
    rows, ids = frame.agg(f.count("id"), f.count_distinct("id")).collect()[0]
    assert rows == ids == jobs, f"expected {jobs} jobs, got {rows} rows of {ids} jobs"
