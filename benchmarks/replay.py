"""The commit of a write without Spark: one client stages the jobs of a frame, then times the scripts that add them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql import DataFrame
from redis import Redis

from benchmarks.sides import QUEUE, timed
from benchmarks.stock import stock_redis
from benchmarks.trials import cpu_seconds
from spark_bull.core.dialects.encode.chunks import ChunkBuilder, PackedChunk
from spark_bull.core.dialects.encode.codec import defaults_of, encode
from spark_bull.core.dialects.registry import DIALECTS
from spark_bull.core.options.parse import Options, parse_options
from spark_bull.core.options.table import ALL_EVENTS, WRITE
from spark_bull.core.queue.dispatch.registration import register
from spark_bull.core.queue.dispatch.writes import QueuePlan, StagedChunk, StagedPart, roll_forward, stage_chunks
from spark_bull.core.queue.handle.handle import QueueHandle, open_handle
from spark_bull.spark.dispatch.rows import plan_rows

WRITE_ID = "replay"


@dataclass(frozen=True)
class Replayed:
    """seconds: from the first script to the last reply. server_us_per_job: Redis' CPU, us."""

    seconds: float
    server_us_per_job: float


def replay(chunks: list[PackedChunk], events: str = ALL_EVENTS) -> Replayed:
    """Adds packed chunks on a fresh server with the scripts of an exactly-once write. events: those that it causes."""
    jobs = sum(chunk.rows for chunk in chunks)
    with stock_redis() as server, Redis.from_url(server.url) as client:
        handle = open_handle(_options(server.url), QUEUE)
        stage = handle.keys.stage(WRITE_ID)
        staged = [StagedChunk(stage, number, chunk.packed) for number, chunk in enumerate(chunks)]
        stage_chunks(handle.connection, staged, 3_600_000)
        register(WRITE_ID, [QueuePlan(handle, [StagedPart(stage, len(chunks), jobs)], {"events": events})], None)
        cpu = cpu_seconds(client)
        seconds = timed(lambda: _roll(handle, jobs))
        return Replayed(seconds, (cpu_seconds(client) - cpu) / jobs * 1e6)


def _roll(handle: QueueHandle, jobs: int) -> None:
    added = roll_forward(handle, WRITE_ID).added
    assert added == jobs, f"expected {jobs} jobs to be added, got {added}"


def chunks_of(frame: DataFrame) -> list[PackedChunk]:
    """The chunks that tasks stage for a frame."""
    return list(_chunks(frame, _options("redis://127.0.0.1")))


def _chunks(frame: DataFrame, options: Options) -> Iterator[PackedChunk]:
    plan, defaults = plan_rows(frame.schema, options), defaults_of(options)
    builder = ChunkBuilder(options["chunkSize"], options["chunkBytes"])
    for batch in frame.toArrow().to_batches():
        numbers = range(batch.num_rows)
        yield from builder.add(encode(DIALECTS[options["protocol"]], plan.rows(batch, numbers), defaults, numbers))
    yield from builder.flush()


def _options(url: str) -> Options:
    return parse_options({"url": url, "queue": QUEUE, "protocol": "bullmq"}, WRITE)
