"""A Worker with concurrency, processors by name, and several queues, on Spark's executors."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Tracer, get_current_span
from pyspark.sql import SparkSession
from redis import Redis

from spark_bull import BullQueue, NewJob, SparkBullError, Worker
from spark_bull.errors import OptionError, WrongState
from spark_bull.worker.job.running_job import RunningJob
from tests.support.wait import wait_until

Open = Callable[[str], BullQueue]


@pytest.fixture(params=["bull-1", "bull", "bullmq"])
def protocol(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def opened(redis_url: str, prefix: str, protocol: str) -> Iterator[Open]:
    queues: list[BullQueue] = []

    def open_queue(name: str) -> BullQueue:
        queues.append(BullQueue(name, url=redis_url, prefix=prefix, protocol=protocol))
        return queues[-1]

    yield open_queue
    for queue in queues:
        queue.close()


def completed(queue: BullQueue, count: int) -> Callable[[], bool]:
    return lambda: queue.counts()["completed"] == count


def test_functions_and_coroutines_run_at_the_same_time_in_one_slot(
    spark: SparkSession, redis_url: str, prefix: str, protocol: str, opened: Open
) -> None:
    """Every job waits for all the others, so that none ends unless all run together."""
    queue = opened("q")
    together = 8

    key = f"{prefix}:together"

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

    names = ["send", "report"] * (together // 2)
    queue.add_many(NewJob({}, name=name) for name in names)
    processors = {"send": meet, "*": meet_later} if protocol != "bull-1" else {"*": meet_later}
    arguments: dict[str, Any] = {"concurrency": together, "slots": 1, "url": redis_url, "prefix": prefix}
    with Worker(spark, "q", processors, protocol=protocol, **arguments) as worker:
        wait_until(completed(queue, together), "all jobs")
        assert worker.status().slots == 1
    returned = Counter(job.parsed("returnvalue") for job in queue.page("completed"))
    if protocol == "bull-1":
        assert returned == {"coroutine None": together}
    else:
        assert returned == {"function send": together // 2, "coroutine report": together // 2}


def test_one_spark_job_processes_several_queues(
    spark: SparkSession, redis_url: str, prefix: str, protocol: str, opened: Open
) -> None:
    urgent, mail = opened("urgent"), opened("mail")
    for queue in (urgent, mail):
        queue.add_many(NewJob({"n": n}) for n in range(20))
        queue.add({"n": "later"}, delay=1)
    # What other tests have cancelled may still end.
    others = {*spark.sparkContext.statusTracker().getActiveJobsIds()}
    with Worker(
        spark,
        queues=["urgent", "mail"],
        weights={"urgent": 3},
        processor=lambda job: f"{job.queue} {job.data['n']}",
        slots=1,
        url=redis_url,
        prefix=prefix,
        protocol=protocol,
    ) as worker:
        assert "urgent, mail" in repr(worker)
        for queue in (urgent, mail):
            wait_until(completed(queue, 21), f"all jobs of {queue}")
        wait_until(lambda: worker.status().completed == 42, "the slots to report")
        assert worker.status().lag == 0
        active = {*spark.sparkContext.statusTracker().getActiveJobsIds()}
        assert len(active - others) == 1
    for name, queue in (("urgent", urgent), ("mail", mail)):
        assert {job.parsed("returnvalue").split()[0] for job in queue.page("completed")} == {name}


def test_a_worker_pauses_and_resumes(
    spark: SparkSession, redis_url: str, prefix: str, protocol: str, opened: Open
) -> None:
    queue = opened("q")
    with Worker(spark, "q", lambda job: job.data, slots=1, url=redis_url, prefix=prefix, protocol=protocol) as worker:
        queue.add({"n": 1})
        wait_until(completed(queue, 1), "the first job")
        worker.pause()
        assert worker.status().state == "paused"
        queue.add_many(NewJob({"n": n}) for n in range(3))
        with Worker(spark, "q", lambda job: "other", slots=1, url=redis_url, prefix=prefix, protocol=protocol) as other:
            wait_until(completed(queue, 4), "another worker to process the jobs")
            wait_until(lambda: other.status().completed == 3, "the other worker to report")
            other.pause()
            worker.resume()
            assert worker.status().state == "running"
            queue.add({"n": 5})
            wait_until(completed(queue, 5), "the job after the resumption")
        wait_until(lambda: worker.status().completed == 2, "the worker to report")
        worker.pause()
    with pytest.raises(SparkBullError, match="running worker"):
        worker.resume()


@pytest.mark.parametrize("protocol", ["bullmq"], indirect=True)
@pytest.mark.parametrize("concurrency", [1, 4])
def test_attempts_on_executors_are_in_the_trace_of_the_program_that_added_their_jobs(
    spark: SparkSession, redis_url: str, prefix: str, protocol: str, opened: Open, concurrency: int
) -> None:
    def tracer() -> Tracer:
        return TracerProvider().get_tracer("executors")

    def processor(job: RunningJob) -> str:
        return f"{get_current_span().get_span_context().trace_id:032x}"

    program = TracerProvider().get_tracer("program")
    queue = opened("q")
    with (
        BullQueue("q", url=redis_url, prefix=prefix, protocol=protocol, tracer=program) as traced,
        program.start_as_current_span("request") as request,
    ):
        traced.add_many(NewJob({"n": n}) for n in range(3))
    with Worker(spark, "q", processor, tracer=tracer, concurrency=concurrency, slots=1, url=redis_url, prefix=prefix):
        wait_until(completed(queue, 3), "the jobs")
    trace = f"{request.get_span_context().trace_id:032x}"
    assert [job.returnvalue for job in queue.page("completed")] == [trace] * 3


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_worker_cancels_a_job(
    spark: SparkSession, redis_url: str, prefix: str, protocol: str, opened: Open, concurrency: int
) -> None:
    queue = opened("q")

    def processor(job: RunningJob) -> None:
        for _ in range(6_000):
            time.sleep(0.1)

    job_id = queue.add({}, attempts=2)
    arguments: dict[str, Any] = {"concurrency": concurrency, "slots": 1, "url": redis_url, "prefix": prefix}
    with Worker(spark, "q", processor, protocol=protocol, **arguments) as worker:
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


@pytest.mark.parametrize("protocol", ["bullmq"], indirect=True)
def test_a_worker_limits_how_often_a_job_starts(
    spark: SparkSession, redis_url: str, prefix: str, protocol: str, opened: Open
) -> None:
    queue = opened("q")

    def processor(job: RunningJob) -> None:
        raise ValueError(f"start {job.attempts_started}")

    queue.add({}, attempts=5)
    # BullMQ 5 starts it once more.
    queue.handle.connection.call("HSET", queue.handle.keys["meta"], "version", "bullmq:6.7.0")
    with Worker(spark, "q", processor, max_started=2, slots=1, url=redis_url, prefix=prefix, protocol=protocol):
        wait_until(lambda: queue.counts()["failed"], "the job to fail")
    assert [job.failed_reason for job in queue.page("failed")] == ["start 2"]
