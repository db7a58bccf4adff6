"""Measures what a job costs, by verb and size of its payload: CPU time of Redis, Python and the JVM, memory, network.

Each figure is the difference between a run with many jobs and one with few, divided by the difference of their numbers:
what happens once per write, query or micro-batch is measured on its own, and is not part of the cost of a job.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from redis import Redis

from benchmarks.calls import CHUNK, add_staged, stage
from benchmarks.filling import queue_at
from benchmarks.probes import cpu_of
from benchmarks.sides import sink
from benchmarks.stock import stock_redis
from benchmarks.trials import Server, cpu_seconds, fresh_server, resume_and_wait, wait_until, work_off
from benchmarks.workers import QUEUE, function
from spark_bull import NewJob, RawJson
from spark_bull.core.embedded.redis import COMPACT_SETTING

FEW, MANY = 20_000, 120_000
#: Bytes of the payloads, as JSON.
PAYLOADS: Final = (200, 1_000, 5_000)
PARTITIONS: Final = (20, 220)
#: Micro-batches after which the costs are read, and rows of a micro-batch.
BATCHES, ROWS = (10, 40), 100
#: Characters of a payload's JSON without its note.
_FRAME: Final = len('{"id":1000000,"note":""}')


@dataclass(frozen=True)
class Line:
    """A cost that grows with the payload: `base`, and `per_kb` for each 1,000 bytes."""

    base: float
    per_kb: float


@dataclass(frozen=True)
class JobCost:
    """What a verb costs per job: CPU time in µs of Redis, of all Python processes and of the JVM; and the bytes that
    Redis receives and sends.
    """

    redis: Line
    python: Line
    jvm: Line
    network: Line


@dataclass(frozen=True)
class FixedCost:
    """CPU time in ms of Redis, of Python and of the JVM for something that happens once for many jobs."""

    redis: float
    python: float
    jvm: float


@dataclass(frozen=True)
class Used:
    """CPU time in s of Redis, Python and the JVM, and bytes to and from Redis."""

    redis: float
    python: float
    jvm: float
    network: float

    def __sub__(self, other: Used) -> Used:
        redis, python, jvm, network = (a - b for a, b in zip(astuple(self), astuple(other), strict=True))
        return Used(redis, python, jvm, network)


@dataclass(frozen=True)
class Life:
    """What each verb has used for all jobs of a run, and Redis' memory with these jobs, in bytes."""

    verbs: Mapping[str, Used]
    memory: Mapping[str, float]


@dataclass(frozen=True)
class PerJob:
    """What a job of one size costs by verb, in µs and bytes, and its memory by state, in bytes."""

    verbs: Mapping[str, Used]
    memory: Mapping[str, float]


def memory_bytes(client: Redis) -> int:
    """Memory of Redis without the buffers of its clients."""
    memory = client.info("memory")
    return int(memory["used_memory"] - memory["mem_clients_normal"])


def used(server: Server) -> Used:
    cpu, stats = cpu_of(os.getpid()), server.client.info("stats")
    network = stats["total_net_input_bytes"] + stats["total_net_output_bytes"]
    return Used(cpu_seconds(server.client), cpu.python, cpu.jvm, network)


def life(spark: SparkSession, jobs: int, payload: int) -> Life:
    """Dispatches, processes, collects and removes jobs on a fresh server."""
    note = f"to_json(named_struct('id', id + 1000000, 'note', repeat('x', {payload - _FRAME}))) AS data"
    frame = spark.range(jobs, numPartitions=4).selectExpr(note).cache()
    frame.count()
    verbs: dict[str, Used] = {}
    with fresh_server() as server:
        empty = memory_bytes(server.client)

        def measure(verb: str, run: Callable[[], Any]) -> None:
            before = used(server)
            run()
            verbs[verb] = used(server) - before

        with sink(frame, "exactly-once")(server.port, jobs) as write:
            measure("dispatch", write)
        waiting = memory_bytes(server.client) - empty
        server.queue.pause()
        with function(spark)(server.url):
            measure("process", lambda: resume_and_wait(server, jobs))
        completed = memory_bytes(server.client) - empty
        before = used(server)
        with _collecting(spark, server, "300000") as query:
            # The processes of a query that has ended are not counted.
            wait_until(lambda: _rows_of(query) == jobs)
            verbs["collect"] = used(server) - before
        measure("clean", server.queue.clean)
        assert not any(server.queue.counts().values())
    frame.unpersist(blocking=True)
    return Life(verbs, {"waiting": waiting, "completed": completed})


def _rows_of(query: StreamingQuery) -> int:
    _batch_of(query)
    return sum(int(batch["numInputRows"]) for batch in query.recentProgress)


def per_job(spark: SparkSession, payload: int, few: int, many: int) -> PerJob:
    less, more = life(spark, few, payload), life(spark, many, payload)
    jobs = many - few
    verbs = {}
    for verb, of_many in more.verbs.items():
        rest = of_many - less.verbs[verb]
        redis, python, jvm = (seconds / jobs * 1e6 for seconds in astuple(rest)[:3])
        verbs[verb] = Used(redis, python, jvm, rest.network / jobs)
    return PerJob(verbs, {state: (size - less.memory[state]) / jobs for state, size in more.memory.items()})


def median_of(runs: Sequence[PerJob]) -> PerJob:
    verbs = {
        verb: Used(*map(statistics.median, zip(*(astuple(run.verbs[verb]) for run in runs), strict=True)))
        for verb in runs[0].verbs
    }
    return PerJob(verbs, {state: statistics.median(run.memory[state] for run in runs) for state in runs[0].memory})


def line_of(costs: Mapping[int, float]) -> Line:
    """The line through costs by payload with the least squares of the relative deviations."""
    weights = {payload: 1 / max(cost, 1e-9) ** 2 for payload, cost in costs.items()}
    total = sum(weights.values())
    mean = sum(weights[payload] * payload for payload in costs) / total
    mean_cost = sum(weights[payload] * cost for payload, cost in costs.items()) / total
    spread = sum(weights[payload] * (payload - mean) ** 2 for payload in costs)
    slope = sum(weights[payload] * (payload - mean) * (cost - mean_cost) for payload, cost in costs.items()) / spread
    return Line(mean_cost - slope * mean, slope * 1_000)


def verbs_of(found: Mapping[int, PerJob]) -> dict[str, JobCost]:
    """The costs of all verbs as lines over the payload."""

    def line(verb: str, name: str) -> Line:
        return line_of({payload: max(0.0, getattr(one.verbs[verb], name)) for payload, one in found.items()})

    names = ("redis", "python", "jvm", "network")
    return {verb: JobCost(*(line(verb, name) for name in names)) for verb in next(iter(found.values())).verbs}


def memory_of(found: Mapping[int, PerJob]) -> dict[str, Line]:
    states = next(iter(found.values())).memory
    return {state: line_of({payload: one.memory[state] for payload, one in found.items()}) for state in states}


def compact_memory(few: int, many: int) -> dict[str, Line]:
    """Redis' memory of jobs in compact form, which a longer limit of their fields gives to all payloads."""
    found: dict[str, dict[int, float]] = {"waiting": {}, "completed": {}}
    for payload in (_FRAME, *PAYLOADS):
        less, more = _compact_bytes(few, payload), _compact_bytes(many, payload)
        for state, bytes_of in found.items():
            bytes_of[payload] = (more[state] - less[state]) / (many - few)
    return {state: line_of(bytes_of) for state, bytes_of in found.items()}


def _compact_bytes(jobs: int, payload: int) -> dict[str, int]:
    note = "x" * (payload - _FRAME)
    with (
        stock_redis({COMPACT_SETTING: str(2 * max(PAYLOADS))}) as server,
        Redis.from_url(server.url) as client,
        queue_at(server.url) as queue,
    ):
        queue.add_many(NewJob(RawJson(f'{{"id":{1_000_000 + n},"note":"{note}"}}')) for n in range(jobs))
        waiting = memory_bytes(client)
        work_off(queue.handle, CHUNK)
        return {"waiting": waiting, "completed": memory_bytes(client)}


def commit_us(jobs: int) -> float:
    """Python's CPU per job in the driver, while it adds the staged jobs of a write."""
    with fresh_server() as server:
        handle = server.queue.handle
        stage(handle, jobs)
        before = time.process_time()
        add_staged(handle, jobs)
        return (time.process_time() - before) / jobs * 1e6


# What happens once for many jobs.


def partition(spark: SparkSession) -> FixedCost:
    """A partition of a write."""
    few, many = PARTITIONS
    costs = []
    with fresh_server() as server:
        for partitions in (few, many):
            frame = spark.range(partitions * 10, numPartitions=partitions).selectExpr("string(id) AS data")
            with sink(frame, "exactly-once")(server.port, partitions) as write:
                before = used(server)
                write()
                costs.append(used(server) - before)
    return _each(costs[1] - costs[0], many - few)


def dispatching_batch(spark: SparkSession) -> FixedCost:
    """A micro-batch of a stream that dispatches the rows of one file."""
    with fresh_server() as server, tempfile.TemporaryDirectory() as folder:
        for number in range(BATCHES[1] + 1):
            text = "".join(f'{{"id":{number * ROWS + row}}}\n' for row in range(ROWS))
            Path(folder, f"{number:04}.txt").write_text(text)
        source = spark.readStream.schema("data STRING").option("maxFilesPerTrigger", 1).text(folder)
        options = {"url": server.url, "queue": QUEUE, "checkpointLocation": f"{folder}/checkpoint"}
        with _running(source.writeStream.format("bull").options(**options).start()) as query:
            return _batches(query, server)


@contextmanager
def _collecting(spark: SparkSession, server: Server, rows: str) -> Iterator[StreamingQuery]:
    """Collects into Parquet, at most so many rows in a batch."""
    options = {"url": server.url, "queue": QUEUE, "startingOffsets": "earliest", "maxJobsPerTrigger": rows}
    with tempfile.TemporaryDirectory() as folder:
        writer = spark.readStream.format("bull").options(**options).load().writeStream.format("parquet")
        with _running(writer.option("checkpointLocation", f"{folder}/checkpoint").start(f"{folder}/jobs")) as query:
            yield query


def collecting_batch(spark: SparkSession) -> FixedCost:
    """A micro-batch of a stream that collects into Parquet."""
    with fresh_server() as server:
        server.queue.add_many(NewJob(RawJson("{}")) for _ in range((BATCHES[1] + 1) * ROWS))
        with function(spark)(server.url):
            resume_and_wait(server, (BATCHES[1] + 1) * ROWS)
        with _collecting(spark, server, str(ROWS)) as query:
            return _batches(query, server)


@contextmanager
def _running(query: StreamingQuery) -> Iterator[StreamingQuery]:
    try:
        yield query
    finally:
        query.stop()


def _batches(query: StreamingQuery, server: Server) -> FixedCost:
    """The difference between two moments of a running query: the processes of one that has ended are not counted."""
    costs, at = [], []
    for number in BATCHES:
        wait_until(lambda number=number: _batch_of(query) >= number)  # type: ignore[misc]
        costs.append(used(server))
        at.append(_batch_of(query))
    return _each(costs[1] - costs[0], at[1] - at[0])


def _batch_of(query: StreamingQuery) -> int:
    failure = query.exception()
    if failure is not None:
        raise failure
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])


def _each(cost: Used, count: int) -> FixedCost:
    return FixedCost(*(seconds / count * 1e3 for seconds in astuple(cost)[:3]))
