"""A worker with a range of slots: their number follows the backlog, and no job is lost or repeated when it changes."""

from __future__ import annotations

from threading import Event
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from redis import Redis

from spark_bull import BullQueue, NewJob, Worker, WorkerFailed
from spark_bull.core.model.limits import Look, SlotRange, SlotScale
from spark_bull.run.slot.slot_plan import SlotPlan
from spark_bull.run.worker.slot_group import SlotGroup
from spark_bull.spark.work.elastic_engine import ElasticEngine
from tests.support.wait import PATIENCE_S, wait_until
from tests.support.work_bench import WorkBench


@pytest.fixture(autouse=True)
def _quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many looks in little time, at an executor with a third core, which Spark does not have."""
    monkeypatch.setattr("spark_bull.spark.work.elastic_engine.LOOK_S", 0.05)
    monkeypatch.setattr("spark_bull.spark.work.elastic_engine.tasks_at_once", lambda _: 3)


@pytest.fixture
def options(redis_url: str, prefix: str) -> dict[str, Any]:
    return {"url": redis_url, "prefix": prefix, "protocol": "bullmq", "progress": False}


def test_slots_start_within_a_few_looks_at_a_step_of_the_load_and_end_after_it(
    queue: BullQueue,
    spark: SparkSession,
    options: dict[str, Any],
    redis_url: str,
    prefix: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen, looks = f"{prefix}:seen", list[tuple[Look, int]]()
    wanted_by_scale = SlotScale.wanted

    def wanted(self: SlotScale, look: Look, current: int, limits: SlotRange) -> int:
        looks.append((look, wanted_by_scale(self, look, current, limits)))
        return looks[-1][1]

    def processor(job: Any) -> None:
        """Ends when two slots have been at work: the load needs both. Later slots can be in other processes."""
        import os

        with Redis.from_url(redis_url) as redis:
            redis.sadd(seen, os.getpid())
            wait_until(lambda: redis.scard(seen) >= 2, "two slots to process a job")

    monkeypatch.setattr(SlotScale, "wanted", wanted)
    caplog.set_level("INFO", "spark_bull")
    with Worker(spark, "q", processor, slots=(0, 8), target_wait_s=0.5, chunk_size=1, **options) as worker:
        wait_until(lambda: len(looks) > 3, "looks at the idle worker")
        assert (worker.status().state, worker.status().slots, worker.status().waiting_slots) == ("running", 0, 0)
        queue.add_many(NewJob({}) for _ in range(100))
        wait_until(lambda: queue.counts()["completed"] == 100, "the jobs to complete")
        status = wait_until(lambda: (now := worker.status()).slots == 0 and now, "the slots to end")
        assert not worker.await_termination(0)
        assert (status.state, status.claimed, status.completed, status.lag) == ("running", 100, 100, 0)
        # It starts again from none.
        queue.add_many(NewJob({}) for _ in range(10))
        wait_until(lambda: queue.counts()["completed"] == 110, "the further jobs to complete")
        assert worker.stop(PATIENCE_S)
    status = worker.status()
    assert (status.state, status.slots, status.waiting_slots, status.restarts) == ("stopped", 0, 0, 0)
    assert (status.claimed, status.completed, status.failed, status.returned, status.lost) == (110, 110, 0, 0, 0)
    assert max(number for _, number in looks) == 2, "there are three cores, one of them for other queries"
    first = next(number for number, (look, _) in enumerate(looks) if look.busy)
    assert 2 in [number for _, number in looks[first : first + 4]]
    assert "1 slots from now on instead of 0, as 100 jobs wait" in caplog.text


@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_number_of_slots_that_changes_under_load_neither_loses_nor_repeats_a_job(
    queue: BullQueue,
    concurrency: int,
    spark: SparkSession,
    options: dict[str, Any],
    redis_url: str,
    prefix: str,
    client: Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also slots for which there is no core end, and others get the numbers of those that have run."""
    runs, wanted = f"{prefix}:runs", [2]
    monkeypatch.setattr(SlotScale, "wanted", lambda self, look, current, limits: wanted[0])

    def processor(job: Any) -> None:
        with Redis.from_url(redis_url) as redis:
            redis.hincrby(runs, job.id, 1)

    settings = {"slots": "0-4", "chunk_size": 5, "concurrency": concurrency, "lock_ms": 86_400_000}
    added = 0
    with Worker(spark, "q", processor, **settings, **options) as worker:
        for number, running, waiting in ((2, 2, 0), (1, 1, 0), (4, 2, 2), (0, 0, 0), (3, 2, 1), (1, 1, 0)):
            queue.add_many(NewJob({}) for _ in range(100))
            added += 100
            wanted[0] = number
            wait_until(
                lambda expected=(running, waiting): ((now := worker.status()).slots, now.waiting_slots) == expected,
                f"{running} slots to run and {waiting} to wait",
            )
        wait_until(lambda: queue.counts()["completed"] == added, "the jobs to complete")
        assert worker.stop(PATIENCE_S)
        status = worker.status()
    assert (status.completed, status.failed, status.retried, status.lost, status.restarts) == (added, 0, 0, 0, 0)
    assert status.claimed == added + status.returned
    assert queue.counts()["active"] == queue.counts()["wait"] == 0
    assert set(client.hvals(runs)) == {b"1"}
    assert client.hlen(runs) == added


def test_the_jobs_of_a_slot_that_was_killed_keep_no_others_beside_the_jobs_of_another_worker(
    queue: BullQueue, spark: SparkSession, options: dict[str, Any], redis_url: str, prefix: str, client: Redis
) -> None:
    """The counters of the worker say for ever that it holds them."""
    killed = f"{prefix}:killed"

    def processor(job: Any) -> None:
        import os
        import signal

        with Redis.from_url(redis_url) as redis:
            if redis.set(killed, "1", nx=True):
                os.kill(os.getpid(), signal.SIGKILL)

    other = WorkBench(queue, client, twice=False)
    other.add(100)
    held = {job.id for job in other.claim(50).jobs}

    def have_completed() -> bool:
        """Whether all jobs of the worker have completed. Those of the killed slot lose their locks at once."""
        if not client.exists(killed) or queue.counts()["wait"]:
            return False
        for job in queue.page("active", 0, 100):
            if job.id not in held:
                client.delete(queue.handle.keys.lock(job.id))
        return queue.counts()["completed"] == 50

    settings = {"slots": (0, 4), "max_stalled": 100, "chunk_size": 20, "lock_ms": 86_400_000, "check_ms": 200}
    with Worker(spark, "q", processor, **settings, **options) as worker:
        wait_until(have_completed, "the jobs of the worker to complete")
        status = wait_until(lambda: (now := worker.status()).slots == 0 and now, "the slots to end")
        assert status.restarts > 0
        assert status.claimed > status.completed + status.lost + status.returned
        assert queue.counts()["active"] == len(held)


class WaitingGroup(SlotGroup):
    """Slots that never get a core."""

    def __init__(self, plan: SlotPlan, numbers: range) -> None:
        super().__init__(plan, numbers, lambda: None)
        self.cancelled = Event()

    def interrupt(self) -> None:
        self.cancelled.set()

    def _run_slots(self) -> None:
        self.cancelled.wait()


def test_a_cancelled_slot_whose_process_starts_late_still_reads_that_it_is_to_stop(
    queue: BullQueue, spark: SparkSession, options: dict[str, Any], client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other slot gets its number, and its request to stop stays in Redis."""
    worker = Worker(spark, "q", print, slots=(0, 4), **options)
    engine = worker._engine
    assert isinstance(engine, ElasticEngine)
    monkeypatch.setattr(engine, "_new_group", WaitingGroup)
    engine._grow(2)
    for group in (groups := engine._groups):
        group.request_stop()
    engine._look()
    for group in groups:
        group.wait(PATIENCE_S)
    engine._look()
    assert engine._groups == []
    engine._grow(2)
    assert [group.numbers.start for group in engine._groups] == [2, 3]
    controls = [group._plan.queues[0].work_settings.control for group in groups]
    assert [client.get(control) for control in controls] == [b"stop", b"stop"]
    for group in engine._groups:
        group.request_stop()
        group.interrupt()


def test_a_worker_without_slots_fails_when_its_session_has_ended(
    queue: BullQueue, spark: SparkSession, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(_: Any) -> int:
        raise RuntimeError("Cannot call methods on a stopped SparkContext.\nThis stopped SparkContext was …")

    with Worker(spark, "q", print, slots=(0, 4), **options) as worker:
        monkeypatch.setattr("spark_bull.spark.work.elastic_engine.tasks_at_once", ended)
        with pytest.raises(WorkerFailed, match=r"could not look at its executors: Cannot call methods on a stopped"):
            worker.await_termination(PATIENCE_S)
    assert worker.status().state == "failed"


def test_slots_of_dataframes_follow_the_backlog_in_threads_of_the_driver(
    queue: BullQueue, spark: SparkSession, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [3]
    monkeypatch.setattr(SlotScale, "wanted", lambda self, look, current, limits: min(wanted[0], limits.most))

    def double(jobs: DataFrame) -> DataFrame:
        return jobs.select("id", "token", (jobs.data.n * 2).alias("returnvalue"))

    queue.add_many(NewJob({"n": n}) for n in range(10))
    with Worker(spark, "q", double, slots=(0, 4), payload_schema="n LONG", **options) as worker:
        wait_until(lambda: worker.status().slots == 3, "three slots to run, although there are two cores")
        wanted[0] = 0
        wait_until(lambda: worker.status().slots == 0, "the slots to end")
        queue.add({"n": 10})
        wanted[0] = 1
        wait_until(lambda: queue.counts()["completed"] == 11, "the jobs to complete")
    assert sorted(job.parsed("returnvalue") for job in queue.page("completed", 0, 20)) == [2 * n for n in range(11)]
