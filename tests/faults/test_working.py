"""Crashes and outages with workers, claiming queries and promoters: no job is lost, interrupted jobs are rescued."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from threading import Event, Lock
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from redis import Redis

from spark_bull import BullQueue, EmbeddedRedis, NewJob, Promoter, RunningJob, Worker
from spark_bull.core.model.limits import GroupLimits
from tests.conformance.chunks_ahead import CHUNK, Frames, add, await_next_chunk, claims_ahead, work_patiently
from tests.faults.drivers import driver, following_query
from tests.faults.programs import add_follow_ups, never_end
from tests.spark.conftest import Bull
from tests.support.drivers import processing_query
from tests.support.forked_programs import ForkedProcess, work
from tests.support.network import LosingProxy
from tests.support.redis_servers import STATES, error_replies
from tests.support.wait import PATIENCE_S, wait_until
from tests.support.worker import OurWorker

OwnRedis = Callable[..., EmbeddedRedis]
DIALECTS = ("bull", "bullmq")
#: How long a call is retried while Redis is unreachable.
RETRY_MS = 1_000
HOUR_MS = 3_600_000


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("protocol", DIALECTS)
def test_lost_replies_repeat_no_job_and_no_follow_up(own_redis: OwnRedis, protocol: str, concurrency: int) -> None:
    """Every third reply is lost with its connection."""
    server, calls = own_redis(), list[int]()

    def processor(job: RunningJob) -> None:
        calls.append(job.data["n"])
        job.then(NewJob(job.data), queue="next")
        job.then(NewJob(job.data, delay=HOUR_MS), queue="later")

    with BullQueue("q", url=server.url, protocol=protocol) as queue:
        queue.add_many(NewJob({"n": n}) for n in range(100))
        with LosingProxy(server.port, each=3) as proxy:
            there = BullQueue("q", url=proxy.url, protocol=protocol)
            with OurWorker(there.handle, processor, chunk_size=7, concurrency=concurrency) as worker:
                wait_until(lambda: queue.counts()["completed"] == 100, "all jobs to complete")
            assert proxy.lost >= 5
    assert sorted(calls) == list(range(100))
    assert (worker.stats.completed, worker.stats.lost) == (100, 0)
    for name, state in (("next", "wait"), ("later", "delayed")):
        with BullQueue(name, url=server.url, protocol=protocol) as following:
            assert sorted(job.data["n"] for job in following.page(state)) == list(range(100))


@pytest.mark.parametrize("state", ["killed", "READONLY", "NOREPLICAS"])
def test_a_worker_continues_after_an_outage_of_redis_or_refused_writes(
    own_redis: OwnRedis, caplog: pytest.LogCaptureFixture, state: str
) -> None:
    """For longer than a call is retried."""
    server, has_begun = own_redis({"appendonly": "yes", "appendfsync": "always"}), Event()

    def wait_for_the_outage(job: RunningJob) -> None:
        assert job.data["n"] < 100 or has_begun.wait(PATIENCE_S)

    with (
        BullQueue("q", url=server.url, protocol="bullmq", retry_ms=RETRY_MS) as queue,
        Redis.from_url(server.url) as client,
    ):
        queue.add_many(NewJob({"n": n}) for n in range(300))
        with OurWorker(queue.handle, wait_for_the_outage, chunk_size=20, lock_ms=HOUR_MS) as worker:
            wait_until(lambda: queue.counts()["completed"] > 20, "some jobs to complete")
            server.kill() if state == "killed" else STATES[state].begin(client)
            has_begun.set()
            wait_until(lambda: "lost Redis, retrying" in caplog.text, "a call to be given up")
            server.restart() if state == "killed" else STATES[state].end(client)
            wait_until(lambda: queue.counts()["completed"] == 300, "all jobs to complete")
        assert worker.stats.lost == 0


@pytest.mark.parametrize(
    ("state", "way"),
    [
        ("killed", "Worker"),
        ("READONLY", "Worker"),
        ("killed", "query"),
        pytest.param("NOREPLICAS", "query", marks=pytest.mark.rest),
    ],
)
def test_a_batch_of_a_dataframe_continues_after_an_outage_of_redis(
    own_redis: OwnRedis, bull: Bull, tmp_path: Path, caplog: pytest.LogCaptureFixture, state: str, way: str
) -> None:
    """For longer than a call is retried, and with a job that fails: other jobs are not blamed."""
    server = own_redis({"appendonly": "yes", "appendfsync": "always"})
    begun, gone = tmp_path / "begun", tmp_path / "gone"

    @f.udf("long")
    def look(n: int) -> int:
        begun.touch()
        while not gone.exists():
            time.sleep(0.02)
        if n == 13:
            raise ValueError("unlucky")
        return n

    def transform(jobs: DataFrame) -> DataFrame:
        return jobs.select("id", "token", look("data.n").alias("returnvalue"))

    def working() -> AbstractContextManager[Any]:
        options, schema = {"url": server.url, "protocol": "bullmq"}, "n LONG"
        if way == "query":
            claim, given = {"lockMs": HOUR_MS, "maxJobsPerTrigger": 20}, {**options, "retryMs": 300}
            return processing_query(
                bull.spark, transform, tmp_path / "checkpoint", given, payload_schema=schema, **claim
            )
        settings = {"lock_ms": HOUR_MS, "chunk_size": 20, "retry_ms": 300, "progress": False}
        return Worker(bull.spark, "q", transform, payload_schema=schema, **settings, **options)

    with BullQueue("q", url=server.url, protocol="bullmq") as queue:
        queue.add_many(NewJob({"n": n}) for n in range(50))
        with working() as running:
            wait_until(begun.exists, "a batch to begin")
            if state == "killed":
                server.kill()
                gone.touch()
                wait_until(lambda: "retrying" in caplog.text, "a call to be given up")
                server.restart()
            else:
                with Redis.from_url(server.url) as client:
                    STATES[state].begin(client)
                    before = error_replies(client)
                    gone.touch()
                    wait_until(lambda: error_replies(client) > before + 20, "the worker to be refused")
                    STATES[state].end(client)
            wait_until(lambda: queue.counts()["completed"] == 49, "all jobs but one to complete")
            wait_until(lambda: queue.counts()["failed"] == 1, "that one to fail")
            assert running.isActive if way == "query" else running.status().state == "running"
        assert [job.failed_reason for job in queue.page("failed")] == ["ValueError: unlucky"]
        assert {job.attempts_started for job in queue.page("completed")} == {1}


@pytest.mark.parametrize("state", ["killed", "READONLY", "NOREPLICAS"])
@pytest.mark.parametrize("protocol", DIALECTS)
def test_a_promoter_continues_after_an_outage_of_redis_or_refused_writes(
    own_redis: OwnRedis, protocol: str, state: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It receives signals again: without them it checks only after hours."""
    monkeypatch.setattr("spark_bull.run.services.promoter.MAX_PAUSE_S", HOUR_MS / 1000)
    monkeypatch.setattr("spark_bull.run.services.service.RECOVER_S", HOUR_MS / 1000)
    server = own_redis({"appendonly": "yes", "appendfsync": "always"})
    with (
        BullQueue("q", url=server.url, protocol=protocol, retry_ms=300) as queue,
        Redis.from_url(server.url) as client,
    ):
        queue.add({"n": 0}, delay=200)
        with Promoter(server.url, ["q"], protocol=protocol, rescue=False, retry_ms=300) as promoter:
            wait_until(lambda: queue.counts()["wait"] == 1, "the first job to be due")
            queue.add({"n": 1}, delay=300)
            server.kill() if state == "killed" else STATES[state].begin(client)
            wait_until(lambda: "lost Redis, retrying" in caplog.text, "a call to be given up")
            server.restart() if state == "killed" else STATES[state].end(client)
            queue.add({"n": 2}, delay=86_400_000)
            wait_until(lambda: queue.counts()["wait"] == 2, "the second job to be due")
            queue.add({"n": 3}, delay=300)
            wait_until(lambda: queue.counts()["wait"] == 3, "a signal to be received again")
            assert promoter.running


def test_a_chunk_that_was_claimed_ahead_survives_an_outage(
    own_redis: OwnRedis, caplog: pytest.LogCaptureFixture
) -> None:
    """For longer than a call is retried, while a chunk runs and the next one is claimed."""
    server = own_redis({"appendonly": "yes", "appendfsync": "always"})
    frames = Frames(server.kill)
    with BullQueue("q", url=server.url, protocol="bullmq", retry_ms=300) as queue:
        add(queue, 5 * CHUNK)
        with OurWorker(queue.handle, runner=frames, chunk_size=CHUNK, lock_ms=HOUR_MS) as worker:
            wait_until(lambda: "lost Redis, retrying" in caplog.text, "a call to be given up")
            server.restart()
            wait_until(lambda: queue.counts()["completed"] == 5 * CHUNK, "all jobs to complete")
    assert [n for numbers in frames.calls for n in numbers] == list(range(5 * CHUNK))
    assert (worker.stats.completed, worker.stats.lost) == (5 * CHUNK, 0)


@pytest.mark.parametrize("protocol", DIALECTS)
def test_a_chunk_that_was_claimed_ahead_runs_once_after_its_slot_was_killed(
    redis_url: str, prefix: str, protocol: str
) -> None:
    """Beside jobs that have stalled, none are claimed: these may end their process again."""
    found = list[bool]()
    again = Frames(lambda: found.append(claims_ahead()))
    with BullQueue("q", url=redis_url, prefix=prefix, protocol=protocol) as queue:
        add(queue, 4 * CHUNK)
        slot = {"runner": Frames(partial(time.sleep, PATIENCE_S)), "chunk_size": CHUNK, "lock_ms": 1_000}
        with ForkedProcess(work_patiently, redis_url, prefix, protocol, never_end, **slot):
            await_next_chunk(queue)
        with Promoter(redis_url, ["q"], check_ms=100, prefix=prefix, protocol=protocol):
            wait_until(lambda: queue.counts()["active"] == 0, "the jobs to be rescued")
        with OurWorker(queue.handle, runner=again, chunk_size=CHUNK):
            wait_until(lambda: queue.counts()["completed"] == 4 * CHUNK, "all jobs to complete")
        assert found == [False]
        assert sorted(n for numbers in again.calls for n in numbers) == list(range(CHUNK, 4 * CHUNK))
        # Bull counts attempts that failed, BullMQ all that ended.
        assert {job.attempts_made for job in queue.page("completed")} == {int(protocol == "bullmq")}


@pytest.mark.parametrize("protocol", DIALECTS)
def test_the_counters_of_groups_are_right_after_a_worker_was_killed(
    client: Redis, redis_url: str, prefix: str, protocol: str
) -> None:
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()
    lock = Lock()

    def count(job: RunningJob) -> None:
        tenant = job.data["tenant"]
        with lock:
            running[tenant] += 1
            most[tenant] = max(most[tenant], running[tenant])
        Event().wait(0.005)
        with lock:
            running[tenant] -= 1

    with BullQueue("q", url=redis_url, prefix=prefix, protocol=protocol) as queue:
        keys = queue.handle.keys
        queue.add_many(NewJob({"tenant": tenant}) for tenant in ["a", "b"] * 15)
        limits = GroupLimits("tenant", concurrency=2)
        slot = {"concurrency": 8, "lock_ms": 1_000, "group": limits}
        with ForkedProcess(work, redis_url, prefix, protocol, never_end, **slot):
            wait_until(lambda: queue.counts()["active"] == 4, "two jobs of each group to run")
            wait_until(lambda: queue.counts()["delayed"] == 26, "the others to be delayed")
        assert client.zcard(keys["group_active"]) == 4
        with (
            Promoter(redis_url, ["q"], check_ms=100, prefix=prefix, protocol=protocol),
            OurWorker(queue.handle, count, concurrency=8, lock_ms=HOUR_MS, group=limits),
        ):
            wait_until(lambda: queue.counts()["completed"] == 30, "all jobs to complete")
        assert max(most.values()) <= 2, most
        assert client.exists(keys["group_active"], keys["group_delayed"]) == 0


@pytest.mark.parametrize(
    ("protocol", "concurrency"), [("bull", 1), ("bullmq", 4), pytest.param("bull-1", 4, marks=pytest.mark.rest)]
)
def test_killed_workers_lose_no_follow_ups_and_repeat_none(
    redis_url: str, prefix: str, protocol: str, concurrency: int
) -> None:
    """Each worker is killed at another time; the last one ends all jobs."""
    count, kills = 600, 6
    options = {"url": redis_url, "prefix": prefix, "protocol": protocol}
    with (
        BullQueue("q", **options) as queue,
        BullQueue("next", **options) as following,
        Promoter(redis_url, ["q"], check_ms=100, max_stalled=1000, prefix=prefix, protocol=protocol),
    ):
        queue.add_many(NewJob({"n": n}) for n in range(count))
        for kill in range(1, kills + 1):
            slot = {"chunk_size": 10, "concurrency": concurrency, "lock_ms": 500}
            with ForkedProcess(work, redis_url, prefix, protocol, add_follow_ups, **slot):
                enough = 2 * count if kill == kills else kill * count // kills
                wait_until(lambda enough=enough: queue.counts()["completed"] >= enough, f"{enough} jobs to complete")
        own = [job.data["of"] for job in queue.page("completed") if "of" in job.data]
        others = [job.data["of"] for job in following.page("wait")]
        assert (sorted(own), sorted(others)) == (list(range(count)), list(range(count)))
        assert queue.counts()["failed"] == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("forked_python")
def test_a_killed_driver_of_a_stream_loses_no_follow_ups_and_repeats_none(
    bull: Bull, queue: BullQueue, redis_url: str, prefix: str, tmp_path: Path
) -> None:
    """A query repeats its last batch; another one begins anew, and ends all jobs."""
    count = 120
    options = {"url": redis_url, "prefix": prefix, "protocol": "bullmq"}
    checkpoint = str(tmp_path / "checkpoint")

    def rescuing_anew() -> Promoter:
        return Promoter(redis_url, ["q"], check_ms=500, max_stalled=1_000, prefix=prefix, protocol="bullmq")

    queue.add_many(NewJob({"n": n}) for n in range(count))
    with rescuing_anew(), driver(tmp_path / "log", "follow", **options, checkpoint=checkpoint) as running:

        def has_begun() -> bool:
            running.check()
            return queue.counts()["completed"] >= count // 3

        wait_until(has_begun, "some jobs to complete")
    with rescuing_anew(), following_query(bull.spark, **options, checkpoint=checkpoint):
        wait_until(lambda: queue.counts()["completed"] >= count, "more jobs to complete")
    with rescuing_anew(), following_query(bull.spark, **options, checkpoint=str(tmp_path / "other")):
        wait_until(lambda: queue.counts()["completed"] >= 2 * count, "all jobs to complete")
    own = [job.data["of"] for job in queue.page("completed") if "of" in job.data]
    with BullQueue("next", **options) as following:
        others = [job.data["of"] for job in following.page("wait")]
    assert (sorted(own), sorted(others)) == (list(range(count)), list(range(count)))
    assert queue.counts()["failed"] == 0
