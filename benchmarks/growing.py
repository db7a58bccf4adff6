"""Measures one verb with one number of jobs in a session of its own: growing.py VERB JOBS

Prints cost per job and peak memory as JSON. Each measurement needs its own session, because the JVM and Python do not
release memory.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from typing import Final

from pyspark.sql import SparkSession
from redis import Redis

from benchmarks.collecting import collects
from benchmarks.filling import plain, queue_at
from benchmarks.finishing import fill_finished
from benchmarks.probes import cpu_of, memory_watched
from benchmarks.sides import new_session, sink, strings
from benchmarks.trials import Server, cpu_seconds, fresh_server, resume_and_wait
from benchmarks.workers import QUEUE, function
from spark_bull.dialects.fields import FIELDS

WARM_UP_JOBS: Final = 50_000
#: Small enough that the JVM collects garbage with any number of jobs instead of growing the heap.
HEAP: Final = "512m"

#: Performs a verb on the jobs of a server.
Run = Callable[[], object]
#: Prepares a verb on a number of jobs. The server is filled by another process, so that memory is that of the verb.
Verb = Callable[[SparkSession, Server, int], AbstractContextManager[Run]]


@dataclass(frozen=True)
class Grown:
    """Cost per job in µs; peak memory in MiB of the JVM, of its heap after a collection, and of all Python processes.

    redis_bytes: memory of Redis that the verb has added, per job.
    """

    wall_us: float
    redis_us: float
    python_us: float
    jvm_us: float
    jvm_mib: float
    heap_mib: float
    python_mib: float
    redis_bytes: float


@contextmanager
def dispatch(spark: SparkSession, server: Server, jobs: int) -> Iterator[Run]:
    with sink(strings(spark, jobs), "exactly-once")(server.port, jobs) as run:
        yield run
    assert server.queue.counts()["wait"] == jobs, f"expected {jobs} jobs to wait, got {server.queue.counts()}"


@contextmanager
def inspect(spark: SparkSession, server: Server, jobs: int) -> Iterator[Run]:
    """Reads all fields of waiting jobs."""
    elsewhere(fill_waiting, server.url, jobs)
    columns = ["count(id)", *(f"max({name})" for name in FIELDS if name != "id")]

    def run() -> None:
        frame = spark.read.format("bull").options(url=server.url, queue=QUEUE, states="wait").load()
        (row,) = frame.selectExpr(*columns).collect()
        assert row[0] == jobs, f"expected {jobs} jobs, got {row[0]}"

    yield run


@contextmanager
def process(spark: SparkSession, server: Server, jobs: int) -> Iterator[Run]:
    server.queue.pause()
    elsewhere(fill_waiting, server.url, jobs)
    with function(spark)(server.url):
        yield lambda: resume_and_wait(server, jobs)


@contextmanager
def collect(spark: SparkSession, server: Server, jobs: int) -> Iterator[Run]:
    elsewhere(fill_completed, server.url, jobs)
    with collects(spark, server.url, jobs) as run:
        yield run


VERBS: Final[Mapping[str, Verb]] = {"dispatch": dispatch, "inspect": inspect, "process": process, "collect": collect}


def measure(spark: SparkSession, verb: Verb, jobs: int) -> Grown:
    """Measures a verb on a fresh server."""
    with fresh_server() as server, verb(spark, server, jobs) as run:
        memory_before, redis_before = memory_bytes(server.client), cpu_seconds(server.client)
        with memory_watched(os.getpid()) as memory:
            before, started = cpu_of(os.getpid()), time.perf_counter()
            run()
            seconds, after = time.perf_counter() - started, cpu_of(os.getpid())
        redis_s = cpu_seconds(server.client) - redis_before
        added = memory_bytes(server.client) - memory_before
    per_job_us = 1e6 / jobs
    return Grown(
        wall_us=seconds * per_job_us,
        redis_us=redis_s * per_job_us,
        python_us=(after.python - before.python) * per_job_us,
        jvm_us=(after.jvm - before.jvm) * per_job_us,
        jvm_mib=memory.jvm,
        heap_mib=live_heap_mib(spark),
        python_mib=memory.python,
        redis_bytes=added / jobs,
    )


def memory_bytes(client: Redis) -> int:
    """Memory of Redis without the buffers of its clients."""
    memory = client.info("memory")
    return int(memory["used_memory"] - memory["mem_clients_normal"])


def live_heap_mib(spark: SparkSession) -> float:
    """Memory of the objects that the JVM still uses."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    jvm.java.lang.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    return float(runtime.totalMemory() - runtime.freeMemory()) / 2**20


def elsewhere(fill: Callable[[str, int], None], url: str, jobs: int) -> None:
    """Calls a function in another process."""
    process = multiprocessing.get_context("spawn").Process(target=fill, args=(url, jobs))
    process.start()
    process.join()
    assert process.exitcode == 0, f"expected the queue to be filled, got exit code {process.exitcode}"


def fill_waiting(url: str, jobs: int) -> None:
    with queue_at(url) as queue:
        queue.add_many(plain(jobs))


def fill_completed(url: str, jobs: int) -> None:
    with queue_at(url) as queue:
        fill_finished(queue, jobs)


def main() -> None:
    verb, jobs = VERBS[sys.argv[1]], int(sys.argv[2])
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = new_session(**{"spark.driver.memory": HEAP})
    measure(spark, verb, min(jobs, WARM_UP_JOBS))
    print(json.dumps(asdict(measure(spark, verb, jobs))))


if __name__ == "__main__":
    main()
