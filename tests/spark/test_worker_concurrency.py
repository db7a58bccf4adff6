"""A Worker with concurrency, processors by name, and several queues, on Spark's executors."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Tracer, get_current_span
from pyspark.sql import SparkSession
from redis import Redis

from spark_bull import BullQueue, NewJob, Worker
from spark_bull.core.errors import OptionError, WrongState
from spark_bull.run.job.running_job import RunningJob
from tests.support.wait import wait_until


@pytest.fixture
def options(redis_url: str, prefix: str) -> dict[str, Any]:
    return {"slots": 1, "url": redis_url, "prefix": prefix, "protocol": "bullmq"}


def completed(queue: BullQueue, count: int) -> Callable[[], bool]:
    return lambda: queue.counts()["completed"] == count


def test_functions_and_coroutines_run_at_the_same_time_in_one_slot(
    spark: SparkSession, queue: BullQueue, options: dict[str, Any], redis_url: str, prefix: str
) -> None:
    """Every job waits for all the others, so that none ends unless all run together."""
    together, key = 8, f"{prefix}:together"

    def arrive() -> None:
        with Redis.from_url(redis_url) as redis:
            redis.incr(key)

    def all_are_there() -> bool:
        with Redis.from_url(redis_url) as redis:
            return int(redis.get(key) or 0) >= together

    def meet(job: RunningJob) -> str:
        arrive()
        while not all_are_there():
            time.sleep(0.01)
        return f"function {job.name}"

    async def meet_later(job: RunningJob) -> str:
        arrive()
        while not all_are_there():
            await asyncio.sleep(0.01)
        return f"coroutine {job.name}"

    queue.add_many(NewJob({}, name=name) for name in ["send", "report"] * (together // 2))
    with Worker(spark, "q", {"send": meet, "*": meet_later}, concurrency=together, **options) as worker:
        wait_until(completed(queue, together), "all jobs")
        assert worker.status().slots == 1
    returned = Counter(job.parsed("returnvalue") for job in queue.page("completed"))
    assert returned == {"function send": together // 2, "coroutine report": together // 2}


def test_one_spark_job_processes_several_queues(
    spark: SparkSession, options: dict[str, Any], redis_url: str, prefix: str
) -> None:
    connection = {"url": redis_url, "prefix": prefix, "protocol": "bullmq"}
    with BullQueue("urgent", **connection) as urgent, BullQueue("mail", **connection) as mail:
        for queue in (urgent, mail):
            queue.add_many(NewJob({"n": n}) for n in range(20))
            queue.add({"n": "later"}, delay=1)
        # What other tests have cancelled may still end.
        others = {*spark.sparkContext.statusTracker().getActiveJobsIds()}
        given: dict[str, Any] = {"queues": ["urgent", "mail"], "weights": {"urgent": 3}, **options}
        with Worker(spark, processor=lambda job: f"{job.queue} {job.data['n']}", **given) as worker:
            assert "urgent, mail" in repr(worker)
            for queue in (urgent, mail):
                wait_until(completed(queue, 21), f"all jobs of {queue}")
            wait_until(lambda: worker.status().completed == 42, "the slots to report")
            assert worker.status().lag == 0
            active = {*spark.sparkContext.statusTracker().getActiveJobsIds()}
            assert len(active - others) == 1
        for queue in (urgent, mail):
            assert {job.parsed("returnvalue").split()[0] for job in queue.page("completed")} == {queue.name}


def test_attempts_on_executors_are_in_the_trace_of_the_program_that_added_their_jobs(
    spark: SparkSession, options: dict[str, Any], redis_url: str, prefix: str
) -> None:
    def tracer() -> Tracer:
        return TracerProvider().get_tracer("executors")

    def processor(job: RunningJob) -> str:
        return f"{get_current_span().get_span_context().trace_id:032x}"

    program = TracerProvider().get_tracer("program")
    with BullQueue("q", url=redis_url, prefix=prefix, protocol="bullmq", tracer=program) as queue:
        with program.start_as_current_span("request") as request:
            queue.add_many(NewJob({"n": n}) for n in range(3))
        with Worker(spark, "q", processor, tracer=tracer, concurrency=4, **options):
            wait_until(completed(queue, 3), "the jobs")
        trace = f"{request.get_span_context().trace_id:032x}"
        assert [job.returnvalue for job in queue.page("completed")] == [trace] * 3


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_worker_cancels_a_job(
    spark: SparkSession, queue: BullQueue, options: dict[str, Any], concurrency: int
) -> None:
    def processor(job: RunningJob) -> None:
        for _ in range(6_000):
            time.sleep(0.1)

    job_id = queue.add({}, attempts=2)
    with Worker(spark, "q", processor, concurrency=concurrency, **options) as worker:
        wait_until(lambda: queue.counts()["active"], "the job to start")
        with pytest.raises(
            OptionError, match=r"expected `queue` to be one of this worker's queues \(q\), got: 'other'"
        ):
            worker.cancel(job_id, queue="other")
        worker.cancel(job_id, "too slow")
        wait_until(lambda: queue.counts()["failed"], "the job to fail")
        with pytest.raises(WrongState, match="to be active, it is failed"):
            worker.cancel(job_id)
    assert [job.failed_reason for job in queue.page("failed")] == ["cancelled: too slow"]
