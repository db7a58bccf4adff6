"""Jobs that expire after they were claimed and before they start: they never start, and end as if never claimed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from redis import Redis

from spark_bull import BullQueue, EmbeddedRedis, NewJob, RunningJob
from spark_bull.core.clock import epoch_ms, monotonic_s
from spark_bull.run.slot.chunk_loop import SETTLE_S
from spark_bull.spark.work.claim_stream import ClaimReader, claim_reader
from spark_bull.spark.work.udf_runner import UdfRunner
from tests.spark.conftest import Bull
from tests.support.drivers import processing_query
from tests.support.wait import wait_until
from tests.support.work_bench import options_of
from tests.support.worker import OurWorker

OwnRedis = Callable[..., EmbeddedRedis]

#: How long jobs may wait that expire while another job runs.
BRIEF_MS = 500
HOUR_MS = 3_600_000
#: Number of jobs that expire.
MANY = 20
PAYLOAD = pa.struct([pa.field("n", pa.int64())])
#: Fields of a job that differ for each job.
_OWN = {b"data", b"timestamp", b"opts", b"processedOn", b"finishedOn", b"expireAt"}


each_dialect = pytest.mark.parametrize(
    "queue", ["bull", "bullmq", pytest.param("bull-1", marks=pytest.mark.rest)], indirect=True
)


def last_expiry(client: Redis, queue: BullQueue, ids: list[str]) -> int:
    """When the last one of these jobs expires, ms since 1970."""
    times = [client.hget(queue.handle.keys.job(job_id), "expireAt") for job_id in ids]
    return max((int(time) for time in times if time), default=0)


def until_expired(client: Redis, queue: BullQueue, ids: list[str]) -> None:
    """Waits until the time of these jobs has come."""
    last = last_expiry(client, queue, ids)
    wait_until(lambda: queue.handle.connection.now_ms() > last, "the jobs to expire")


def let_expire(client: Redis, queue: BullQueue, ids: list[str]) -> None:
    """Lets the time of these jobs come at once."""
    for job_id in ids:
        client.hset(queue.handle.keys.job(job_id), "expireAt", "1")


def ended(queue: BullQueue, failed: int, completed: int) -> Callable[[], bool]:
    return lambda: (queue.counts()["failed"], queue.counts()["completed"]) == (failed, completed)


def fields(client: Redis, queue: BullQueue, job_id: str) -> dict[bytes, bytes]:
    """The fields of a job that have the same values in another one that has ended in the same way."""
    raw: dict[bytes, bytes] = client.hgetall(queue.handle.keys.job(job_id))
    return {name: value for name, value in raw.items() if name not in _OWN}


def check_as_if_never_claimed(client: Redis, queue: BullQueue, ids: list[str]) -> None:
    """Compares jobs with one that has expired before a worker saw it."""
    (never_claimed,) = queue.add_many([NewJob({"n": 0}, expire_at=1)]).ids
    with OurWorker(queue.handle, lambda job: job.id):
        wait_until(lambda: queue.counts()["failed"] == len(ids) + 1, "the jobs to fail")
    expected = fields(client, queue, never_claimed)
    assert expected[b"failedReason"] == b"expired"
    assert [fields(client, queue, job_id) for job_id in ids] == [expected] * len(ids)
    assert not any(client.hexists(queue.handle.keys.job(job_id), "expireAt") for job_id in ids)


def add(queue: BullQueue, count: int, **terms: Any) -> list[str]:
    return queue.add_many([NewJob({"n": n}, **terms) for n in range(count)]).ids


@each_dialect
def test_jobs_that_expire_behind_a_long_job_of_their_chunk_do_not_start(queue: BullQueue, client: Redis) -> None:
    (long_job,) = add(queue, 1)
    gone, kept = add(queue, MANY, expire_after_ms=BRIEF_MS), add(queue, 2, expire_after_ms=HOUR_MS)
    started: list[str] = []

    def processor(job: RunningJob) -> None:
        started.append(job.id)
        if job.id == long_job:
            until_expired(client, queue, gone)

    with OurWorker(queue.handle, processor, chunk_size=100):
        wait_until(ended(queue, MANY, 3), "all jobs to end")
    assert started == [long_job, *kept]
    check_as_if_never_claimed(client, queue, gone)


def test_jobs_that_expire_while_redis_is_away_do_not_start(own_redis: OwnRedis) -> None:
    """A slot waits for Redis when it settles a part of its chunk."""
    server = own_redis()
    with BullQueue("q", url=server.url, protocol="bullmq") as queue, Redis.from_url(server.url) as client:
        (first,), gone, kept = add(queue, 1), add(queue, MANY, expire_after_ms=2 * BRIEF_MS), add(queue, 1)
        last = last_expiry(client, queue, gone)
        started: list[str] = []

        def come_back() -> None:
            wait_until(lambda: epoch_ms() > last, "the jobs to expire")
            os.kill(server.pid, signal.SIGCONT)

        def processor(job: RunningJob) -> None:
            started.append(job.id)
            if job.id == first:
                os.kill(server.pid, signal.SIGSTOP)
                begun = monotonic_s()
                Thread(target=come_back).start()
                wait_until(lambda: monotonic_s() > begun + SETTLE_S, "the slot to settle this job at once")

        with OurWorker(queue.handle, processor, chunk_size=100, lock_ms=HOUR_MS):
            wait_until(ended(queue, MANY, 2), "all jobs to end")
        assert started == [first, *kept]


def test_jobs_that_expire_while_a_chunk_is_gathered_are_not_in_the_call_of_a_udf(
    queue: BullQueue, client: Redis
) -> None:
    gone, kept = add(queue, MANY, expire_after_ms=BRIEF_MS), add(queue, 2)
    called: list[int] = []

    def function(n: int) -> str:
        called.append(n)
        return str(n)

    runner = UdfRunner(function, "row", PAYLOAD, pa.string())
    with OurWorker(queue.handle, runner=runner, chunk_size=100, min_chunk=100, chunk_wait_ms=2 * BRIEF_MS):
        wait_until(ended(queue, MANY, 2), "all jobs to end")
    assert called == [0, 1]
    assert [queue.wait(job_id) for job_id in kept] == ["0", "1"]
    check_as_if_never_claimed(client, queue, gone)


def test_jobs_that_have_a_call_of_a_udf_each_do_not_start_after_they_have_expired(
    queue: BullQueue, client: Redis
) -> None:
    (long_job,) = add(queue, 1, delivery="at-most-once")
    gone = add(queue, MANY, delivery="at-most-once", expire_after_ms=BRIEF_MS)
    calls: list[int] = []

    def function(n: int) -> None:
        calls.append(n)
        until_expired(client, queue, gone)

    with OurWorker(queue.handle, runner=UdfRunner(function, "row", PAYLOAD, pa.string()), chunk_size=100):
        wait_until(ended(queue, MANY, 1), "all jobs to end")
    assert calls == [0]
    assert queue.wait(long_job) is None


def test_coroutines_do_not_start_after_their_jobs_have_expired(queue: BullQueue, client: Redis) -> None:
    (long_job,) = add(queue, 1)
    gone, kept = add(queue, MANY, expire_after_ms=BRIEF_MS), add(queue, 2)
    started: list[str] = []

    async def processor(job: RunningJob) -> None:
        started.append(job.id)
        if job.id == long_job:
            # It blocks the event loop, in which the others are to start.
            until_expired(client, queue, gone)

    with OurWorker(queue.handle, processor, concurrency=MANY + 3):
        wait_until(ended(queue, MANY, 3), "all jobs to end")
    assert sorted(started) == sorted([long_job, *kept])
    check_as_if_never_claimed(client, queue, gone)


def read_all(reader: ClaimReader, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
    parts = reader.partitions(start, end)
    # Spark may run a task again.
    first, again = ([row for part in parts for batch in reader.read(part) for row in batch.to_pylist()] for _ in (1, 2))
    assert again == first
    return [row["id"] for row in first]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_jobs_that_expire_before_their_micro_batch_starts_are_not_in_it(
    queue: BullQueue, client: Redis, is_restarted: bool
) -> None:
    options = {**options_of(queue), "readerId": "reader"}
    reader = claim_reader(options)
    plain, gone, kept = add(queue, 1), add(queue, MANY, expire_after_ms=HOUR_MS), add(queue, 1, expire_after_ms=HOUR_MS)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    let_expire(client, queue, gone)
    if is_restarted:
        reader = claim_reader(options)
    assert read_all(reader, start, end) == plain + kept
    check_as_if_never_claimed(client, queue, gone)


@each_dialect
def test_jobs_of_a_micro_batch_that_have_started_do_not_expire(queue: BullQueue, client: Redis) -> None:
    reader = claim_reader(options_of(queue))
    ids = add(queue, 3, expire_after_ms=HOUR_MS)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    (part,) = reader.partitions(start, end)
    assert [batch["id"].to_pylist() for batch in reader.read(part)] == [ids]
    # Their time is over now.
    assert not any(client.hexists(queue.handle.keys.job(job_id), "expireAt") for job_id in ids)
    # Another worker has got one of them.
    client.set(queue.handle.keys.lock(ids[1]), "another")
    assert [batch["id"].to_pylist() for batch in reader.read(part)] == [[ids[0], ids[2]]]


def test_a_query_does_not_start_a_job_that_expires_after_it_was_claimed_ahead(
    queue: BullQueue, client: Redis, redis_url: str, prefix: str, bull: Bull, tmp_path: Path
) -> None:
    may_end = tmp_path / "may-end"

    @f.udf("long")
    def look(n: int) -> int:
        (tmp_path / str(n)).touch()
        if n == 0:
            wait_until(may_end.exists, "the next job to be claimed, and to expire")
        return n

    def transform(jobs: DataFrame) -> DataFrame:
        return jobs.select("id", "token", look("data.n").alias("returnvalue"))

    long_job, gone, kept = add(queue, 3, expire_after_ms=HOUR_MS)
    options = {"url": redis_url, "prefix": prefix, "protocol": queue.protocol}
    settings = {"payload_schema": "n LONG", "lockMs": HOUR_MS, "maxJobsPerTrigger": 1}
    with processing_query(bull.spark, transform, tmp_path / "checkpoint", options, **settings):
        wait_until((tmp_path / "0").exists, "the first job to start")
        wait_until(lambda: gone in [job.id for job in queue.page("active")], "the next job to be claimed")
        let_expire(client, queue, [gone])
        may_end.touch()
        wait_until(ended(queue, 1, 2), "all jobs to end")
    assert [(tmp_path / str(n)).exists() for n in range(3)] == [True, False, True]
    assert {job.id: job.failed_reason for job in queue.page("failed")} == {gone: "expired"}
    assert {job.id for job in queue.page("completed")} == {long_job, kept}
