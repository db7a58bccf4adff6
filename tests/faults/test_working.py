"""Crashes and outages with workers, claiming queries and promoters: no job is lost, interrupted jobs are rescued."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Event, Lock
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from redis import Redis

from spark_bull import BullQueue, EmbeddedRedis, NewJob, Promoter, Worker
from spark_bull.model.group_limits import GroupLimits
from spark_bull.queue.core.claim_settings import ClaimSettings
from spark_bull.queue.process.claim import work
from spark_bull.worker.job.running_job import RunningJob
from tests.spark.conftest import Bull
from tests.support import claiming_driver
from tests.support.claiming_driver import ClaimingDriver
from tests.support.following_driver import FollowingDriver, following_worker
from tests.support.forked_process import ForkedProcess
from tests.support.killed_workers import work_on_groups, work_with_follow_ups
from tests.support.network import losing_proxy
from tests.support.node import PEERS, NodePeer, Peer
from tests.support.redis_servers import STATES, error_replies
from tests.support.wait import PATIENCE_S, wait_until
from tests.support.worker import OurWorker
from tests.support.writes import register_all

ROOT = Path(__file__).parents[2]
OwnRedis = Callable[..., EmbeddedRedis]
DIALECTS = ("bull-1", "bull", "bullmq")
#: How long a call is retried while Redis is unreachable.
RETRY_MS = 1_000
HOUR_MS = 3_600_000


def echo(job: RunningJob) -> Any:
    return job.data


@pytest.mark.parametrize("protocol", DIALECTS)
def test_lost_replies_have_no_effect_on_a_worker(own_redis: OwnRedis, protocol: str) -> None:
    """Every third reply is lost with its connection, and each job is still processed once."""
    server = own_redis()
    calls: list[Any] = []

    def processor(job: RunningJob) -> Any:
        calls.append(job.data)
        return job.data

    with BullQueue("q", url=server.url, protocol=protocol) as queue:
        queue.add_many(NewJob({"n": n}) for n in range(100))
        with losing_proxy(server.port, each=3) as proxy:
            there = BullQueue("q", url=proxy.url, protocol=protocol)
            with OurWorker(there.handle, processor, chunk_size=7) as worker:
                wait_until(lambda: queue.counts()["completed"] == 100, "all jobs to complete")
            assert proxy.lost >= 5
        assert len(calls) == 100
        assert worker.stats is not None
        assert (worker.stats.completed, worker.stats.lost) == (100, 0)


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("protocol", DIALECTS)
def test_lost_replies_lose_no_follow_ups_and_repeat_none(own_redis: OwnRedis, protocol: str, concurrency: int) -> None:
    server = own_redis()

    def processor(job: RunningJob) -> None:
        job.then(NewJob(job.data), queue="next")
        job.then(NewJob(job.data, delay=HOUR_MS), queue="later")

    with BullQueue("q", url=server.url, protocol=protocol) as queue:
        queue.add_many(NewJob({"n": n}) for n in range(100))
        with losing_proxy(server.port, each=3) as proxy:
            there = BullQueue("q", url=proxy.url, protocol=protocol)
            with OurWorker(there.handle, processor, chunk_size=7, concurrency=concurrency):
                wait_until(lambda: queue.counts()["completed"] == 100, "all jobs to complete")
            assert proxy.lost >= 5
    for name, state in (("next", "wait"), ("later", "delayed")):
        with BullQueue(name, url=server.url, protocol=protocol) as following:
            assert sorted(job.data["n"] for job in following.page(state)) == list(range(100))


def test_a_worker_continues_after_an_outage_of_redis(own_redis: OwnRedis, caplog: pytest.LogCaptureFixture) -> None:
    """For longer than a call is retried."""
    server = own_redis({"appendonly": "yes", "appendfsync": "always"})
    with BullQueue("q", url=server.url, protocol="bullmq", retry_ms=RETRY_MS) as queue:
        queue.add_many(NewJob({"n": n}) for n in range(300))

        killed = Event()

        def wait_for_the_kill(job: RunningJob) -> Any:
            assert job.data["n"] < 100 or killed.wait(PATIENCE_S)
            return job.data

        with OurWorker(queue.handle, wait_for_the_kill, chunk_size=20, lock_ms=HOUR_MS) as worker:
            wait_until(lambda: queue.counts()["completed"] > 20, "some jobs to complete")
            server.kill()
            killed.set()
            wait_until(lambda: "lost Redis, retrying" in caplog.text, "a call to be given up")
            server.restart()
            wait_until(lambda: queue.counts()["completed"] == 300, "all jobs to complete")
        assert worker.stats is not None
        assert worker.stats.lost == 0


@pytest.mark.parametrize("protocol", DIALECTS)
def test_a_worker_continues_after_redis_has_refused_writes(own_redis: OwnRedis, bull: Bull, protocol: str) -> None:
    """As during a fail-over, and longer than a call is retried."""
    server = own_redis()

    def slowly(job: RunningJob) -> Any:
        time.sleep(0.005)
        return job.data

    options = {"url": server.url, "protocol": protocol, "retry_ms": 200}
    # A job may stall by the refusals, and again as the machine is busy.
    settings = {"slots": 2, "lock_ms": 3_000, "check_ms": 500, "max_stalled": 1_000, "progress": False}
    with BullQueue("q", url=server.url, protocol=protocol) as queue, Redis.from_url(server.url) as client:
        worker = Worker(bull.spark, "q", slowly, **settings, **options)
        with worker:
            for state in ("READONLY", "NOREPLICAS"):
                done = queue.counts()["completed"]
                queue.add_many(NewJob({"n": n}) for n in range(300))
                wait_until(lambda done=done: queue.counts()["completed"] > done + 20, "some jobs to complete")
                STATES[state].begin(client)
                before = error_replies(client)
                wait_until(
                    lambda before=before: error_replies(client) > before + 20, "slots and services to be refused"
                )
                STATES[state].end(client)
                wait_until(lambda done=done: queue.counts()["completed"] == done + 300, "all jobs to complete")
            assert worker.status().state == "running"
            assert queue.counts()["active"] == 0


@pytest.mark.parametrize(("state", "engine"), [("killed", "loop"), ("killed", "stream"), ("NOREPLICAS", "stream")])
def test_a_batch_of_a_dataframe_continues_after_an_outage_of_redis(
    own_redis: OwnRedis, bull: Bull, tmp_path: Path, state: str, engine: str
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

    options = {"url": server.url, "protocol": "bullmq", "retry_ms": 300}
    settings = {"payload_schema": "n LONG", "lock_ms": HOUR_MS, "max_jobs_per_trigger": 20, "progress": False}
    with BullQueue("q", url=server.url, protocol="bullmq") as queue:
        queue.add_many(NewJob({"n": n}) for n in range(50))
        with Worker(bull.spark, "q", transform, engine=engine, **settings, **options) as worker:
            wait_until(begun.exists, "a batch to begin")
            if state == "killed":
                server.kill()
                gone.touch()
                time.sleep(2)
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
            assert worker.status().state == "running"
        assert [job.failed_reason for job in queue.page("failed")] == ["ValueError: unlucky"]
        assert {job.attempts_started for job in queue.page("completed")} == {1}


@pytest.mark.parametrize("protocol", DIALECTS)
def test_a_promoter_continues_after_an_outage_of_redis(
    own_redis: OwnRedis, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It receives signals again: without them it checks only after hours."""
    monkeypatch.setattr("spark_bull.services.promoter.MAX_PAUSE_S", HOUR_MS / 1000)
    monkeypatch.setattr("spark_bull.services.recovery.RECOVER_S", HOUR_MS / 1000)
    server = own_redis({"appendonly": "yes", "appendfsync": "always"})
    with BullQueue("q", url=server.url, protocol=protocol, retry_ms=300) as queue:
        queue.add({"n": 0}, delay=200)
        with Promoter(server.url, ["q"], protocol=protocol, rescue=False, retry_ms=300) as promoter:
            wait_until(lambda: queue.counts()["wait"] == 1, "the first job to be due")
            server.kill()
            server.restart()
            queue.add({"n": 1}, delay=300)
            queue.add({"n": 2}, delay=86_400_000)
            wait_until(lambda: queue.counts()["wait"] == 2, "the second job to be due")
            queue.add({"n": 3}, delay=300)
            wait_until(lambda: queue.counts()["wait"] == 3, "a signal to be received again")
            assert promoter.running


def test_a_promoter_recovers_an_open_write(own_redis: OwnRedis) -> None:
    server = own_redis()
    with BullQueue("q", url=server.url, protocol="bullmq") as queue:
        register_all(queue.handle, "write", [[NewJob({"n": n}) for n in range(5)]])
        assert queue.counts()["wait"] == 0
        with Promoter(server.url, ["q"]) as promoter:
            wait_until(lambda: queue.counts()["wait"] == 5, "the write to be finished")
            wait_until(lambda: promoter.done.recovered == 1, "the promoter to count it")


def test_jobs_of_a_killed_slot_are_rescued(bull: Bull, client: Redis, redis_url: str, prefix: str) -> None:
    """The Python process of the task is killed within a chunk, as when an executor dies."""

    def processor(job: RunningJob) -> Any:
        job.update_progress(os.getpid())
        time.sleep(0.02)
        return job.attempts_started

    options = {"url": redis_url, "prefix": prefix}
    with BullQueue("q", **options, protocol="bullmq") as queue:
        queue.add_many(NewJob({"n": n}) for n in range(150))
        settings = {"slots": 1, "lock_ms": 10_000, "check_ms": 1_000, "progress": False}
        with Worker(bull.spark, "q", processor, **settings, **options) as worker:
            wait_until(lambda: queue.counts()["completed"] > 20, "some jobs to complete")
            (running, *_) = [job for job in queue.page("active") if job.progress] or queue.page("completed")
            os.kill(int(running.parsed("progress")), signal.SIGKILL)
            wait_until(lambda: queue.counts()["completed"] == 150, "all jobs to complete")
            assert worker.status().restarts == 1
        assert queue.counts()["failed"] == 0


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.usefixtures("forked_python")
def test_a_killed_claiming_query_continues_with_its_jobs(
    bull: Bull, client: Redis, redis_url: str, prefix: str, tmp_path: Path
) -> None:
    """As that of a Worker, see test_killed_drivers_of_a_stream_lose_no_follow_ups_and_repeat_none."""
    options = {"url": redis_url, "prefix": prefix, "checkpoint": str(tmp_path / "checkpoint")}
    with BullQueue("q", url=redis_url, prefix=prefix, protocol="bullmq") as queue:
        queue.add_many(NewJob({"n": n}) for n in range(1_000))
        with ClaimingDriver(tmp_path / "log", **options) as driver:

            def has_completed(enough: int) -> bool:
                driver.check()
                return queue.counts()["completed"] >= enough

            wait_until(lambda: has_completed(300), "300 jobs to complete")
        locks = [queue.handle.keys.lock(job.id) for job in queue.page("active")]
        wait_until(lambda: not (locks and client.exists(*locks)), "the locks of the last batch to expire")
        again = claiming_driver.start(bull.spark, **options)
        try:
            wait_until(lambda: not again.isActive or queue.counts()["completed"] >= 1_000, "all jobs to complete")
        finally:
            again.stop()
        assert queue.counts()["completed"] == 1_000
        finished = queue.page("completed")
        assert all(job.parsed("returnvalue") == job.parsed()["n"] for job in finished)
        # Claimed once each, by the first driver or the second.
        assert {job.attempts_started for job in finished} == {1}


def test_a_job_that_was_moved_to_active_but_not_locked_is_rescued(own_redis: OwnRedis) -> None:
    """Bull moves a job to `active` before it locks it."""
    server = own_redis()
    with BullQueue("q", url=server.url, protocol="bull") as queue:
        queue.add({"n": 1})
        keys = queue.handle.keys
        queue.handle.connection.call("BLMOVE", keys["wait"], keys["active"], "RIGHT", "LEFT", 1)
        with Promoter(server.url, ["q"], protocol="bull", check_ms=100):
            wait_until(lambda: queue.counts()["wait"] == 1, "the job to be rescued")
        assert len(work(queue.handle, ClaimSettings("s"), None, 5).jobs) == 1


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
        with ForkedProcess(work_on_groups, redis_url, prefix, protocol):
            wait_until(lambda: queue.counts()["active"] == 4, "two jobs of each group to run")
            wait_until(lambda: queue.counts()["delayed"] == 26, "the others to be delayed")
        assert client.zcard(keys["group_active"]) == 4
        limits = GroupLimits("tenant", concurrency=2)
        with (
            Promoter(redis_url, ["q"], check_ms=100, prefix=prefix, protocol=protocol),
            OurWorker(queue.handle, count, concurrency=8, lock_ms=HOUR_MS, group=limits),
        ):
            wait_until(lambda: queue.counts()["completed"] == 30, "all jobs to complete")
        assert max(most.values()) <= 2, most
        assert client.exists(keys["group_active"], keys["group_delayed"]) == 0


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("protocol", DIALECTS)
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
            with ForkedProcess(work_with_follow_ups, redis_url, prefix, protocol, concurrency):
                enough = 2 * count if kill == kills else kill * count // kills
                wait_until(lambda enough=enough: queue.counts()["completed"] >= enough, f"{enough} jobs to complete")
        own = [job.data["of"] for job in queue.page("completed") if "of" in job.data]
        others = [job.data["of"] for job in following.page("wait")]
        assert (sorted(own), sorted(others)) == (list(range(count)), list(range(count)))
        assert queue.counts()["failed"] == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("forked_python")
def test_killed_drivers_of_a_stream_lose_no_follow_ups_and_repeat_none(
    bull: Bull, redis_url: str, prefix: str, tmp_path: Path
) -> None:
    """The second driver repeats the last batch of the first one; a third query begins anew, and ends all jobs."""
    count, kills = 120, 2
    options = {"url": redis_url, "prefix": prefix, "protocol": "bullmq"}
    checkpoint = str(tmp_path / "checkpoint")
    with BullQueue("q", **options) as queue, BullQueue("next", **options) as following:
        queue.add_many(NewJob({"n": n}) for n in range(count))
        for kill in range(1, kills + 1):
            with FollowingDriver(tmp_path / f"log-{kill}", **options, checkpoint=checkpoint) as driver:
                enough = kill * count // (kills + 1)

                def is_enough(driver: FollowingDriver = driver, enough: int = enough) -> bool:
                    driver.check()
                    return queue.counts()["completed"] >= enough

                wait_until(is_enough, f"{enough} jobs to complete")
        with following_worker(bull.spark, **options):
            wait_until(lambda: queue.counts()["completed"] >= 2 * count, "all jobs to complete")
        own = [job.data["of"] for job in queue.page("completed") if "of" in job.data]
        others = [job.data["of"] for job in following.page("wait")]
        assert (sorted(own), sorted(others)) == (list(range(count)), list(range(count)))
        assert queue.counts()["failed"] == 0


HANGING_WORKER = """
import sys, threading
from spark_bull import BullQueue
from spark_bull.queue.process import claim as claims
from tests.support.worker import OurWorker

forever = threading.Event()

def hang(*_, **__):
    print("claimed", flush=True)
    forever.wait()

claims.advance = hang
url, prefix, protocol = sys.argv[1:]
with BullQueue("q", url=url, prefix=prefix, protocol=protocol) as queue, OurWorker(queue.handle, lock_ms=500):
    forever.wait()
"""


def schedule_hourly(node: NodePeer, dialect: str) -> None:
    """Creates a job scheduler in the queue `q` with the Node library."""
    repeat = {"every": HOUR_MS}
    if dialect == "bullmq":
        node.call("invoke", queue="q", method="upsertJobScheduler", args=["report", repeat, {"name": "report"}])
    else:
        node.call("add", queue="q", jobs=[{"name": "report", "data": {}, "opts": {"repeat": repeat}}])


@pytest.mark.interop
@pytest.mark.parametrize("peer", [peer for peer in PEERS if peer.dialect != "bull-1"], ids=str)
def test_a_scheduler_continues_after_its_worker_was_killed_between_claim_and_advance(
    node: Callable[..., NodePeer], redis_url: str, prefix: str, peer: Peer
) -> None:
    command = [sys.executable, "-c", HANGING_WORKER, redis_url, prefix, peer.dialect]
    options = {"url": redis_url, "prefix": prefix, "protocol": peer.dialect}
    with BullQueue("q", **options) as queue:

        def delayed() -> list[str]:
            return [job.id for job in queue.page("delayed")]

        schedule_hourly(node(peer.alias, prefix=prefix), peer.dialect)
        for job_id in delayed():  # BullMQ lets the first one wait at once.
            queue.promote(job_id)
        (first,) = [job.id for job in queue.page("wait")]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as killed:
            assert killed.stdout is not None
            assert killed.stdout.readline() == "claimed\n"
            killed.kill()
        assert ([job.id for job in queue.page("active")], delayed()) == ([first], [])
        with Promoter(redis_url, ["q"], check_ms=100, prefix=prefix, protocol=peer.dialect), OurWorker(queue.handle):
            done: list[str] = []
            for _ in range(3):
                wait_until(lambda: len(delayed()) == 1 and queue.counts()["active"] == 0, "the next job to be made")
                wait_until(lambda: queue.counts()["completed"] == len(done) + 1, "the job to complete")
                (following,) = delayed()
                assert following not in done
                done.append(following)
                queue.promote(following)
            wait_until(lambda: queue.counts()["completed"] == 4, "the last job to complete")
        assert len(delayed()) == 1
        assert len({job.id for job in queue.page("completed")} | set(delayed())) == 5
