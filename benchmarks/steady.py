"""Measures a collecting query while jobs finish at a constant rate."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from redis import Redis

from benchmarks.collecting import READER, WARM_UP_JOBS, check_once, ended, finished_queue, start
from benchmarks.probes import descendants, memory_of
from benchmarks.report import percentile
from benchmarks.trials import BASE, Server, wait_until
from benchmarks.workers import peer_process
from spark_bull.core.store.scripts import load

#: The module that runs latestOffset(), as in its command line.
SOURCE_RUNNER = b"python_streaming_source_runner"
SAMPLE_S = 0.25


@dataclass(frozen=True)
class Sample:
    """A sample at a time, s since 1970: finished jobs, and the resources of the query.

    held: entries of the ledger and ids in its look-back window; held_bytes: their memory in Redis. source_mib: memory
    (PSS) of the process that runs latestOffset().
    """

    at: float
    finished: int
    held: int
    held_bytes: int
    source_mib: float


@dataclass(frozen=True)
class Steady:
    """The result of a measurement. batches: end (s since 1970) and number of rows of each batch."""

    per_second: float
    samples: list[Sample]
    batches: list[tuple[float, int]]
    discover_p50_ms: float
    discover_longest_ms: float

    def unread(self) -> list[int]:
        """Number of finished jobs not yet delivered, at each sample."""
        return [s.finished - sum(rows for at, rows in self.batches if at <= s.at) for s in self.samples]


def steady(spark: SparkSession, per_second: int, seconds: int) -> Steady:
    """Runs the stream to Parquet with a trigger of 1 s; its first batch is complete before the measurement."""
    jobs = WARM_UP_JOBS + per_second * seconds
    command = [sys.executable, "-m", "benchmarks.finishing"]
    with finished_queue(WARM_UP_JOBS) as server, tempfile.TemporaryDirectory() as folder:
        query = start(spark, server.url, folder, processingTime="1 second")
        wait_until(lambda: delivered(query) >= WARM_UP_JOBS)
        server.client.slowlog_reset()
        with peer_process([*command, server.url, str(per_second), str(seconds)]) as finisher:
            finisher.expect("ready")
            with sampled(server) as samples:
                started = time.perf_counter()
                finisher.send("go")
                finisher.expect("done")
                lasted = time.perf_counter() - started
        wait_until(lambda: delivered(query) >= jobs)
        batches = [(ended(batch), batch["numInputRows"]) for batch in query.recentProgress]
        query.stop()
        check_once(spark.read.parquet(f"{folder}/jobs"), jobs)
        return Steady(per_second * seconds / lasted, samples, batches, *discover_ms(server.client))


@contextmanager
def sampled(server: Server) -> Iterator[list[Sample]]:
    """Takes four samples per second."""
    samples: list[Sample] = []
    stop = threading.Event()
    sources = source_processes()

    def watch() -> None:
        while not stop.wait(SAMPLE_S):
            samples.append(sample(server, sources))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield samples
    finally:
        stop.set()
        watcher.join()


def sample(server: Server, sources: Sequence[int]) -> Sample:
    keys = server.queue.handle.keys.results(READER)
    pipeline = server.client.pipeline(transaction=False)
    pipeline.zcard(f"{BASE}completed")
    pipeline.llen(keys["ledger"])
    pipeline.zcard(keys["seen_completed"])
    for key in keys.values():
        pipeline.memory_usage(key)
    at = time.time()
    finished, entries, seen, *sizes = pipeline.execute()
    return Sample(at, finished, entries + seen, sum(filter(None, sizes)), sum(memory_of(pid)[1] for pid in sources))


def source_processes() -> list[int]:
    """Finds the processes of this session that run latestOffset() of a query."""
    found = [pid for pid in descendants(os.getpid()) if SOURCE_RUNNER in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert found, "expected a process that runs the source of the query"
    return found


def discover_ms(client: Redis) -> tuple[float, float]:
    """Returns median and maximum duration of the discovering scripts in the slow log, ms."""
    ours = b"EVALSHA " + load("bullmq/discover").sha.encode()
    times = [entry["duration"] / 1000 for entry in client.slowlog_get(100_000) if entry["command"].startswith(ours)]
    return percentile(times or [0.0], 50), max(times, default=0.0)


def delivered(query: StreamingQuery) -> int:
    return sum(batch["numInputRows"] for batch in query.recentProgress)
