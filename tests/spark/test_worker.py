"""Worker: functions, UDFs and transformations over the jobs of a queue, on the executors."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from redis import Redis

from spark_bull import (
    BullQueue,
    DelayedError,
    NewJob,
    RateLimitError,
    ReturnedError,
    UnrecoverableError,
    WaitingForChildren,
    Worker,
)
from spark_bull.core.errors import ConnectionLost, JobDamaged, OptionError, SparkBullError, WorkerFailed
from spark_bull.run.services.service import LOOK_S
from spark_bull.run.slot.slot_queue import IDLE_S
from spark_bull.run.slot.slot_report import MOST
from spark_bull.run.worker.slot_group import SlotGroup
from spark_bull.spark.platform.capabilities import CAPABILITIES
from tests.spark.conftest import work_off
from tests.support.wait import PATIENCE_S, interrupt_in, wait_until

Start = Callable[..., Worker]
PEOPLE = "name STRING, age INT"


@pytest.fixture
def start(spark: SparkSession, queue: BullQueue, redis_url: str, prefix: str) -> Iterator[Start]:
    """Starts a worker of the queue with one slot, which is stopped after the test."""
    started: list[Worker] = []

    def start(processor: Any, **options: Any) -> Worker:
        settings = {"slots": 1, "progress": False, "url": redis_url, "prefix": prefix, "protocol": queue.protocol}
        worker = Worker(spark, options.pop("queue", "q"), processor, **{**settings, **options})
        started.append(worker)
        return worker.start()

    yield start
    for worker in started:
        worker.stop(PATIENCE_S)


def by_n(queue: BullQueue, state: str) -> dict[Any, Any]:
    """The jobs of a state by `data.n`."""
    return {job.parsed()["n"]: job for job in queue.page(state)}


# functions


@pytest.mark.parametrize("queue", ["bull", "bullmq"], indirect=True)
def test_a_function_processes_jobs(queue: BullQueue, start: Start) -> None:
    def processor(job: Any) -> Any:
        if job.data["n"] % 5 == 0:
            raise ValueError(f"no fives: {job.data['n']}")
        return {"double": 2 * job.data["n"]}

    queue.add_many(NewJob({"n": n}) for n in range(200))
    start(processor)
    assert work_off(queue) == {"completed": 160, "failed": 40}
    assert all(job.parsed("returnvalue") == {"double": 2 * n} for n, job in by_n(queue, "completed").items())
    failed = by_n(queue, "failed")[35]
    assert failed.failed_reason == "no fives: 35"
    assert "ValueError: no fives: 35" in failed.stacktrace[0]
    assert 'raise ValueError(f"no fives' in failed.stacktrace[0]


def failing(kind: str) -> Any:
    """A processor of a kind that fails all jobs."""

    def processor(job: Any) -> None:
        raise ValueError(f"no address in {job.data['n']}")

    @f.udf("STRING")
    def processor_of_value(n: int) -> str:
        raise ValueError(f"no address in {n}")

    def with_errors(jobs: DataFrame) -> DataFrame:
        why = f.concat(f.lit("no address in "), f.col("data.n").cast("STRING"))
        return jobs.withColumn("error", why).withColumn("stacktrace", f.concat(f.lit("in processor: "), why))

    return {"function": processor, "UDF": processor_of_value, "column": with_errors}[kind]


@pytest.mark.parametrize("kind", ["function", "UDF", "column"])
def test_the_driver_logs_why_jobs_fail_but_not_all_of_them(
    queue: BullQueue, start: Start, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    options = {} if kind == "function" else {"payload_schema": "n INT"}
    queue.add_many(NewJob({"n": n}) for n in range(5))
    worker = start(failing(kind), **options)
    assert work_off(queue)["failed"] == 5
    assert worker.stop()
    said = [record.getMessage() for record in caplog.records if "failed: " in record.getMessage()]
    assert len(said) == MOST
    assert said[0].startswith(f"worker {worker.id}: job ")
    assert all(f" of queue {queue.name} failed: " in one and "no address in " in one for one in said)
    assert ["are logged a few per minute" in one for one in said] == [True, False, False]
    assert all("in processor" in one for one in said)


def test_a_transformation_without_tokens_fails_the_worker_and_returns_its_jobs(queue: BullQueue, start: Start) -> None:
    def transform(jobs: DataFrame) -> DataFrame:
        return jobs.selectExpr("id", "'1' AS returnvalue")

    queue.add_many(NewJob({"n": n}) for n in range(20))
    worker = start(transform, lock_ms=3_600_000)
    with pytest.raises(WorkerFailed) as raised:
        worker.await_termination(PATIENCE_S)
    said = "expected the transformation to return the columns id, token and returnvalue or error, got: id, returnvalue"
    assert str(raised.value) == f"worker {worker.id} failed: {said}"
    assert (queue.counts()["wait"], queue.counts()["active"]) == (20, 0)


def test_a_job_that_kills_its_process_fails_alone(queue: BullQueue, start: Start) -> None:
    def processor(job: Any) -> Any:
        if job.data["n"] == 13:
            import os

            os._exit(1)
        return "alive"

    queue.add_many(NewJob({"n": n}) for n in range(40))
    worker = start(processor, lock_ms=10_000, check_ms=1_000)
    assert work_off(queue) == {"completed": 39, "failed": 1}
    assert by_n(queue, "failed")[13].failed_reason == "job stalled more than allowable limit"
    assert worker.status().restarts >= 2


def test_a_worker_whose_wait_was_interrupted_still_finishes_what_it_has_claimed(
    queue: BullQueue, start: Start, tmp_path: Path
) -> None:
    """Ctrl-C in `await_termination` does not make it believe that its slots have ended."""
    go = tmp_path / "go"

    def processor(job: Any) -> Any:
        job.update_progress(1)
        while not go.exists():
            time.sleep(0.02)
        return "done"

    queue.add({"n": 1})
    worker = start(processor)
    wait_until(lambda: any(job.progress for job in queue.page("active")), "the job to run")
    interrupt_in(SlotGroup.wait)
    with pytest.raises(KeyboardInterrupt):
        worker.await_termination()
    assert worker.status().state == "running"
    go.touch()
    assert worker.stop(PATIENCE_S) is True
    assert queue.counts()["completed"] == 1


@pytest.mark.rest
def test_an_idle_slot_sends_few_commands(own_redis: Callable[..., Any], spark: SparkSession) -> None:
    def commands() -> int:
        stats = client.info("commandstats")
        return sum(int(one["calls"]) for name, one in stats.items() if name != "cmdstat_info")

    def uptime_s() -> int:
        return int(client.info("server")["uptime_in_seconds"])

    server = own_redis()
    idle = Worker(spark, "q", lambda job: None, url=server.url, slots=1, promoter=False, progress=False)
    with Redis.from_url(server.url) as client, idle as worker:
        wait_until(lambda: worker.status().slots == 1, "the slot to start")
        wait_until(lambda: any(one["cmd"] == "bzpopmin" for one in client.client_list()), "the slot to wait")
        before, began = commands(), uptime_s()
        wait_until(lambda: uptime_s() > began + LOOK_S, "some seconds to pass")
        idle_s = uptime_s() + 1 - began
        # It waits, and then reports; its driver looks for losses.
        assert commands() - before <= 2 * (1 + idle_s / IDLE_S) + 2 * (1 + idle_s / LOOK_S)


def test_status_and_context_manager_of_a_worker_that_node_sees(
    queue: BullQueue, spark: SparkSession, client: Redis, redis_url: str, prefix: str
) -> None:
    queue.add_many(NewJob({"n": n}) for n in range(50))
    options: dict[str, Any] = {"slots": 1, "url": redis_url, "prefix": prefix, "progress": False}
    with Worker(spark, "q", lambda job: 1, worker_name="sparky", **options) as worker:
        work_off(queue)
        assert queue.page("completed")[0].processed_by == "sparky"
        assert f"{queue.handle.keys.client_name}:w:sparky" in {one["name"] for one in client.client_list()}
        status = wait_until(lambda: (s := worker.status()).completed == 50 and s, "the slot to report")
        assert (status.claimed, status.failed, status.lag, status.slots, status.state) == (50, 0, 0, 1, "running")
        assert "50 completed" in str(status)
        assert worker.await_termination(0.1) is False
    assert worker.await_termination(PATIENCE_S) is True
    with pytest.raises(SparkBullError, match="has not been started"):
        worker.start()


def test_one_spark_job_processes_several_queues(
    spark: SparkSession, queue: BullQueue, start: Start, redis_url: str, prefix: str
) -> None:
    with BullQueue("mail", url=redis_url, prefix=prefix, protocol="bullmq") as mail:
        for one in (queue, mail):
            one.add_many(NewJob({"n": n}) for n in range(20))
            one.add({"n": "later"}, delay=1)
        # What other tests have cancelled may still end.
        others = {*spark.sparkContext.statusTracker().getActiveJobsIds()}
        worker = start(lambda job: job.queue, queue=None, queues=["q", "mail"], weights={"q": 3})
        assert "q, mail" in repr(worker)
        for one in (queue, mail):
            assert work_off(one) == {"completed": 21}
            assert {job.returnvalue for job in one.page("completed")} == {one.name}
        wait_until(lambda: worker.status().completed == 42, "the slots to report")
        assert worker.status().lag == 0
        active = {*spark.sparkContext.statusTracker().getActiveJobsIds()}
        assert len(active - others) == 1


# UDFs


def udfs() -> dict[str, tuple[Any, Any]]:
    """UDFs of every kind for {"name": "ada", "age": 36}, with their expected results."""

    @f.udf("string")
    def by_column(name: str, age: int) -> str:
        return f"{name} {age}"

    @f.udf("struct<greeting: string, ages: array<int>>")
    def by_row(person: Any) -> Any:
        return {"greeting": f"hi {person.name}", "ages": [person.age, person.age + 1]}

    @f.pandas_udf("string")
    def by_series(name: pd.Series, age: pd.Series) -> pd.Series:
        return name + " " + age.astype(str)

    @f.pandas_udf("struct<name: string, old: boolean>")
    def by_frame(people: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"name": people["name"], "old": people["age"] > 35})

    @f.pandas_udf("double")
    def by_iterator(frames: Iterator[pd.DataFrame]) -> Iterator[pd.Series]:
        for frame in frames:
            yield frame["age"] / 2

    made = {
        "udf over columns": (by_column, "ada 36"),
        "udf over rows": (by_row, {"greeting": "hi ada", "ages": [36, 37]}),
        "pandas over columns": (by_series, "ada 36"),
        "pandas over a frame": (by_frame, {"name": "ada", "old": True}),
        "pandas iterator": (by_iterator, 18.0),
    }
    return made | arrow_udfs() if CAPABILITIES["arrow-udf"].has else made


def arrow_udfs() -> dict[str, tuple[Any, Any]]:
    """The same for UDFs over Arrow data."""

    @f.arrow_udf("string")
    def by_array(name: pa.Array, age: pa.Array) -> pa.Array:
        return pc.binary_join_element_wise(name, age.cast("string"), " ")

    @f.arrow_udf("double")
    def by_iterator(people: Iterator[pa.Array]) -> Iterator[pa.Array]:
        for struct in people:
            yield pc.divide(struct.field("age").cast("double"), 2)

    return {"arrow over columns": (by_array, "ada 36"), "arrow iterator": (by_iterator, 18.0)}


# processors of several kinds, by name


def of_all_kinds() -> dict[str, Any]:
    """Processors by name, beside the UDFs; they are pickled by value."""

    @f.udf("INT")
    def refuse(n: int) -> int:
        raise ValueError("negative")

    def shout(jobs: DataFrame) -> DataFrame:
        is_bad = f.col("data.text") == "bad"
        answer = f.struct(f.upper("data.text").alias("said"))
        return jobs.select("id", "token", answer.alias("returnvalue"), f.when(is_bad, "bad").alias("error"))

    async def wait(job: Any) -> str:
        await asyncio.sleep(0)
        return f"awaited {job.data}"

    def other(job: Any) -> str:
        if job.name == "slow":
            time.sleep(600)
        return f"{job.name} {job.data} {job.state}"

    return {"refuse": refuse, "shout": shout, "await": wait, "*": other}


@pytest.mark.parametrize("frames", [False, True])
def test_a_mapping_has_processors_of_all_kinds(queue: BullQueue, start: Start, frames: bool) -> None:
    given, processors = udfs(), of_all_kinds()
    schemas = dict.fromkeys(given, PEOPLE) | {"refuse": "n INT", "shout": "text STRING"}
    if not frames:
        del processors["shout"], schemas["shout"]
    ada = {"name": "ada", "age": 36, "more": 1}
    jobs = [(kind, ada) for kind in [*given] * 3] + [("refuse", {"n": -1}), ("pandas iterator", "no object")]
    jobs += [("shout", {"text": "a"}), ("shout", {"text": "bad"}), ("await", 7), ("other", 8), ("slow", 9)]
    queue.add_many(NewJob(data, name, opts={"timeout": 500 if name == "slow" else 0}) for name, data in jobs)
    worker = start(
        {kind: udf for kind, (udf, _) in given.items()} | processors, payload_schema=schemas, setup=lambda: "state"
    )
    work_off(queue)
    made = sorted((str(job.name), job.parsed("returnvalue")) for job in queue.page("completed", 0, 100))
    reasons = {(job.name, job.data_text): str(job.failed_reason) for job in queue.page("failed")}
    if frames:
        of_shout: list[Any] = [{"said": "A"}]
        assert reasons.pop(("shout", '{"text":"bad"}')) == "bad"
    else:
        of_shout = [f"shout {{'text': '{text}'}} state" for text in ("a", "bad")]
    wanted = [(kind, value) for kind, (_, value) in given.items() for _ in range(3)]
    wanted += [("shout", value) for value in of_shout] + [("await", "awaited 7"), ("other", "other 8 state")]
    assert made == sorted(wanted)
    assert reasons.pop(("refuse", '{"n":-1}')) == "negative"
    assert "expected the payload to match the schema" in reasons.pop(("pandas iterator", '"no object"'))
    assert "500 ms at most (its timeout)" in reasons.pop(("slow", "9"))
    assert not reasons
    assert worker.stop(PATIENCE_S)


def test_retry_rules_hold_for_processors_of_all_kinds(queue: BullQueue, start: Start) -> None:
    class Away(ConnectionError):
        pass

    @f.udf("INT")
    def ask(n: int) -> int:
        raise Away("away")

    def ask_all(jobs: DataFrame) -> DataFrame:
        return jobs.select("id", "token", ask(f.length("data")).alias("returnvalue"))

    def ask_one(job: Any) -> int:
        raise Away("away")

    processors: dict[str, Any] = {"udf": ask, "frame": ask_all, "*": ask_one}
    queue.add_many(NewJob(1, name, attempts=5) for name in processors)
    start(processors, payload_schema={"udf": "INT"}, retry={"Away": 2, "ValueError": 0})
    assert work_off(queue) == {"failed": len(processors)}
    assert {job.attempts_made for job in queue.page("failed")} == {2}


# errors before the start


def test_wrong_arguments_are_refused_before_the_start(spark: SparkSession, redis_url: str, prefix: str) -> None:
    udf = udfs()["pandas over columns"][0]
    lock = threading.Lock()

    @f.pandas_udf("double")
    def total(n: pd.Series) -> float:
        return float(n.sum())

    wrong: list[tuple[dict[str, Any], str]] = [
        ({"processor": None}, "expected `processor`"),
        ({"processor": {}}, "a mapping of job names to functions"),
        ({"processor": {"send": udf}}, "expected `payload_schema` for a UDF"),
        ({"processor": {"send": udf, "*": 7}, "payload_schema": PEOPLE}, r"`processor\['\*'\]` to be a processor"),
        (
            {"processor": {"send": udf, "*": print}, "payload_schema": {"send": PEOPLE, "*": PEOPLE}},
            r"`payload_schema` to name UDFs and functions of DataFrames in `processor` \(send\), got: \*",
        ),
        ({"processor": {"send": udf}, "payload_schema": PEOPLE, "concurrency": 2}, "`concurrency` has no effect"),
        ({"processor": print, "concurrency": 0}, "`concurrency`"),
        ({"processor": print, "min_chunk": 5}, "`min_chunk` has no effect on functions"),
        ({"processor": print, "queues": ["r"]}, "one of `queue` .* and `queues`"),
        ({"processor": print, "queue": None}, "one of `queue` .* and `queues`"),
        ({"processor": print, "queue": None, "queues": ["a", "a"]}, "`queues` to be different names"),
        ({"processor": print, "weights": {"p": 1}}, "`weights`.* got: 'p'"),
        ({"processor": print, "weights": {"q": 0}}, r"`weights\['q'\]` to be a positive integer"),
        ({"processor": total, "payload_schema": "n INT"}, r"an @arrow_udf \(since PySpark 4.1\)"),
        ({"processor": udf}, "`payload_schema`"),
        ({"processor": udf, "payload_schema": PEOPLE, "setup": print}, "`setup` has no effect"),
        ({"processor": udf, "payload_schema": "name STRNG"}, "DDL"),
        ({"processor": udf, "payload_schema": "a INT, b INT, c INT"}, "3 fields"),
        ({"processor": lambda jobs: jobs, "payload_schema": PEOPLE}, "annotated as a DataFrame; .* leave it out"),
        ({"processor": lambda job: lock, "slots": 1}, "`processor` to be picklable"),
        ({"processor": print, "setup": lambda: lock, "slots": 1}, "`setup` to be picklable"),
    ]
    for arguments, words in wrong:
        with pytest.raises(OptionError, match=words):
            Worker(spark, **{"queue": "q", "url": redis_url, "prefix": prefix, "promoter": False, **arguments}).start()
    with pytest.raises(ConnectionLost, match=r"127\.0\.0\.1:1"):
        Worker(spark, "q", print, url="redis://127.0.0.1:1", retry_ms=0, protocol="bullmq", progress=False)


def test_a_worker_fails_if_its_slots_cannot_start(
    queue: BullQueue, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unloadable:
        def __reduce__(self) -> Any:
            return json.loads, ("{no",)

    broken = Unloadable()
    worker = start(lambda job: broken)
    with pytest.raises(WorkerFailed, match="JSONDecodeError"):
        worker.await_termination(PATIENCE_S)
    assert worker.status().state == "failed"


def test_a_slot_has_its_environment_variables_until_it_ends(
    spark: SparkSession, queue: BullQueue, start: Start
) -> None:
    def variable(_: Any = None) -> str | None:
        import os

        return os.environ.get("SPARK_BULL_TEST_MODEL")

    @f.udf("string")
    def in_udf(n: int) -> str | None:
        return variable()

    def processor(job: Any) -> Any:
        return [job.state, variable()]

    env = {"SPARK_BULL_TEST_MODEL": "3"}
    queue.add({"n": 1})
    worker = start(processor, setup=variable, env=env)
    assert work_off(queue) == {"completed": 1}
    worker.stop(PATIENCE_S)
    queue.add({"n": 2})
    worker = start(in_udf, payload_schema="n INT", env=env)
    assert work_off(queue) == {"completed": 2}
    worker.stop(PATIENCE_S)
    assert {n: job.parsed("returnvalue") for n, job in by_n(queue, "completed").items()} == {1: ["3", "3"], 2: "3"}
    afterwards = spark.range(4, numPartitions=2).select(f.udf(variable, "string")("id").alias("variable"))
    assert {row.variable for row in afterwards.collect()} == {None}


def failing_setup(redis_url: str, key: str, failures: int) -> Callable[[], None]:
    """A setup that fails in slot 1, this many times, and counts these times."""

    def setup() -> None:
        context = TaskContext.get()
        with Redis.from_url(redis_url) as redis:
            if context.partitionId() == 1 and redis.incr(key) <= failures:
                raise KeyError("MODEL")

    return setup


def test_a_setup_that_fails_in_one_slot_ends_the_worker_and_leaves_the_jobs_of_the_others_in_order(
    queue: BullQueue, start: Start, redis_url: str, prefix: str, client: Redis
) -> None:
    key = f"{prefix}:failures"

    def processor(job: Any) -> None:
        with Redis.from_url(redis_url) as redis:
            wait_until(lambda: redis.get(key), "the setup of the other slot to fail")

    queue.add_many(NewJob({}) for _ in range(100))
    worker = start(processor, setup=failing_setup(redis_url, key, 100), slots=2, lock_ms=3_600_000)
    with pytest.raises(WorkerFailed, match=r"after 3 attempts, last error: expected `setup` .* KeyError: 'MODEL'"):
        worker.await_termination(PATIENCE_S)
    assert client.get(key) == b"3"
    counts = queue.counts()
    assert (counts["active"], counts["failed"], counts["wait"] + counts["completed"]) == (0, 0, 100)
    start(processor, setup=failing_setup(redis_url, key, 0), slots=2)
    assert work_off(queue) == {"completed": 100}
    assert {job.stalled_counter for job in queue.page("completed")} == {0}


def test_the_status_counts_slots_that_wait_for_a_core_and_says_why(
    queue: BullQueue, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    worker = start(lambda job: 1, slots=5)
    status = wait_until(lambda: (now := worker.status()).slots == 2 and now, "two slots to run")
    assert (status.waiting_slots, status.tasks) == (3, 2)
    assert status.waiting_for == "a core: Spark runs 2 tasks at the same time"
    assert "0 of 2 slots busy, 3 more waiting for a core: Spark runs 2 tasks at the same time" in str(status)
    assert "its 5 slots take all cores, as Spark runs 2 tasks at the same time" in caplog.text
    assert worker.stop(PATIENCE_S)
    assert (worker.status().slots, worker.status().waiting_slots) == (0, 0)


def test_slots_that_start_later_pause_process_and_stop_with_the_others(
    queue: BullQueue,
    start: Start,
    redis_url: str,
    prefix: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One core is left to other queries."""
    both, cores = f"{prefix}:both", [2]
    # As if further executors started.
    monkeypatch.setattr("spark_bull.spark.work.spark_engine.tasks_at_once", lambda _: cores[0])

    def processor(job: Any) -> None:
        with Redis.from_url(redis_url) as redis:
            redis.sadd(both, os.getpid())
            wait_until(lambda: redis.scard(both) == 2, "both slots to process a job")

    worker = start(processor, slots=None, chunk_size=1)
    wait_until(lambda: worker.status().slots == 1, "the first slot to run")
    worker.pause()
    queue.add_many(NewJob({}) for _ in range(20))
    cores[0] = 3
    wait_until(lambda: worker.status().slots == 2, "the second slot to run")
    assert worker.status().claimed == 0
    worker.resume()
    assert work_off(queue) == {"completed": 20}
    assert worker.stop(PATIENCE_S)
    status = worker.status()
    assert (status.state, status.slots, status.waiting_slots, status.completed) == ("stopped", 0, 0, 20)
    assert "take all cores" not in caplog.text


# transformations


def test_slots_of_dataframes_take_several_queues_pause_and_count_starts(
    queue: BullQueue, start: Start, redis_url: str, prefix: str, client: Redis
) -> None:
    def transform(jobs: DataFrame) -> DataFrame:
        return jobs.select("id", "token", f.concat("queue", "data").alias("error"))

    with BullQueue("other", url=redis_url, prefix=prefix, protocol="bullmq") as other:
        queue.add("a")
        started = other.add("b", attempts=3)
        client.hset(other.handle.keys.job(started), "ats", 5)
        given: dict[str, Any] = {"queues": ["q", "other"], "weights": {"other": 2}, "max_started": 5}
        worker = start(transform, queue=None, group={"by": "none", "concurrency": 1}, **given)
        wait_until(lambda: queue.counts()["failed"] == other.counts()["failed"] == 1, "the jobs of both queues to fail")
        assert [job.failed_reason for job in queue.page("failed")] == ['q"a"']
        assert [job.failed_reason for job in other.page("failed")] == ["job started more than allowable limit"]
        worker.pause()
        assert worker.status().state == "paused"
        other.add("c")
        queue.add("d")
        assert not worker.await_termination(1)
        assert (other.counts()["wait"], queue.counts()["wait"]) == (1, 1)
        worker.resume()
        wait_until(lambda: queue.counts()["failed"] == other.counts()["failed"] == 2, "the others to fail")
        queue.add("e", delivery="at-most-once")
        wait_until(lambda: queue.counts()["failed"] == 3, "the job that must not run twice to fail")
        reasons = {job.data: str(job.failed_reason) for job in queue.page("failed")}
        assert "Process it with a function of a job" in reasons["e"]
        assert worker.status().failed == 5


def blocking(folder: str) -> Callable[[DataFrame], DataFrame]:
    """A transformation that makes a file for a slow job, and does not end then."""

    @f.udf("string")
    def maybe_slow(data: str) -> str:
        if data == '"slow"':
            (Path(folder) / "begun").touch()
            time.sleep(600)
        return "1"

    def transform(jobs: DataFrame) -> DataFrame:
        return jobs.select("id", "token", maybe_slow("data").alias("returnvalue"))

    return transform


@pytest.mark.parametrize("ends", ["cancel", "timeout"])
def test_a_job_of_a_dataframe_is_ended_alone(queue: BullQueue, start: Start, tmp_path: Path, ends: str) -> None:
    queue.pause()
    # Quick jobs would have to end within the timeout.
    quick = 2 if ends == "cancel" else 0
    ids = queue.add_many(NewJob(data) for data in ("slow", *["quick"] * quick)).ids
    queue.resume()
    worker = start(blocking(str(tmp_path)), timeout_ms=500 if ends == "timeout" else 0)
    if ends == "cancel":
        wait_until((tmp_path / "begun").exists, "the slow job to begin")
        worker.cancel(ids[0], "enough")
    wait_until(lambda: queue.counts()["failed"] == 1 and queue.counts()["completed"] == quick, "all jobs to end")
    (failed,) = queue.page("failed")
    reason = "cancelled: enough" if ends == "cancel" else "500 ms at most (its timeout)"
    assert failed.id == ids[0]
    assert reason in str(failed.failed_reason)


def test_a_stop_returns_the_jobs_of_a_dataframe(queue: BullQueue, start: Start, tmp_path: Path) -> None:
    queue.add_many(NewJob("slow") for _ in range(3))
    worker = start(blocking(str(tmp_path)), lock_ms=3_600_000, promoter=False)
    wait_until((tmp_path / "begun").exists, "the jobs to begin")
    assert not worker.stop(0.1)
    assert (queue.counts()["wait"], queue.counts()["active"]) == (3, 0)
    assert [one.stalled_counter for one in queue.page("wait")] == [0, 0, 0]
    assert not worker._engine.running


#: What the first run of a job raises, by its name.
REQUESTS: dict[str, Exception] = {
    "hopeless": UnrecoverableError("never"),
    "damaged": JobDamaged("never"),
    "later": DelayedError(50),
    "limited": RateLimitError(60),
    "returned": ReturnedError(),
    "parent": WaitingForChildren(),
}


def check_requested_outcomes(queue: BullQueue) -> None:
    """The jobs of REQUESTS, and the job plain, have ended as their first run requested."""
    assert work_off(queue) == {"completed": 5, "failed": 2}
    failed = by_n(queue, "failed")
    assert {n: (job.failed_reason, job.attempts_made) for n, job in failed.items()} == {
        "hopeless": ("never", 1),
        "damaged": ("never", 1),
    }
    for job in queue.page("completed"):
        assert (job.attempts_made, job.attempts_started) == (1, 1 if job.parsed()["n"] == "plain" else 2)


def test_a_udf_can_control_how_its_job_ends(queue: BullQueue, start: Start, redis_url: str) -> None:
    seen = queue.handle.keys.job("seen")

    @f.pandas_udf("string")
    def say(n: pd.Series) -> pd.Series:
        with Redis.from_url(redis_url) as redis:
            for one in n:
                # A failing call is repeated with fewer jobs: the error counts once the job is alone.
                if one in REQUESTS and not redis.sismember(seen, one):
                    if len(n) == 1:
                        redis.sadd(seen, one)
                    raise REQUESTS[one]
        return n

    queue.add_many(NewJob({"n": n}, attempts=5) for n in ("plain", *REQUESTS))
    start(say, payload_schema="n STRING")
    check_requested_outcomes(queue)


def test_a_udf_within_a_transformation_can_control_how_its_job_ends(queue: BullQueue, start: Start) -> None:
    @f.udf("int")
    def say(n: str, started: int) -> int:
        if n in REQUESTS and started == 1:
            raise REQUESTS[n]
        return started

    def transform(jobs: DataFrame) -> DataFrame:
        return jobs.select("id", "token", say("data.n", "attemptsStarted").alias("returnvalue"))

    queue.add_many(NewJob({"n": n}, attempts=5) for n in ("plain", *REQUESTS))
    worker = start(transform, payload_schema="n STRING")
    check_requested_outcomes(queue)

    def totals() -> tuple[int, int, int, int]:
        status = worker.status()
        return status.claimed, status.completed, status.failed, status.returned

    wait_until(lambda: totals() == (11, 5, 2, 4), "the totals to count all jobs")


def test_any_exception_of_a_transformation_fails_the_jobs_of_its_batch(queue: BullQueue, start: Start) -> None:
    def transform(jobs: DataFrame) -> DataFrame:
        raise asyncio.CancelledError("half \ud83d a sign")

    queue.add_many(NewJob({"n": n}) for n in range(2))
    worker = start(transform)
    assert work_off(queue) == {"failed": 2}
    assert {job.failed_reason for job in queue.page("failed")} == {"half \ufffd a sign"}
    assert worker.status().state == "running"


def test_any_exception_of_a_function_of_a_transformation_fails_its_own_job(queue: BullQueue, start: Start) -> None:
    """Spark cannot send invalid Unicode, and most other exceptions end its Python process."""

    @f.udf("long")
    def by_row(n: int) -> int:
        if n == 1:
            sys.exit()
        if n == 2:
            raise ValueError("half \ud83d a sign")
        return n

    @f.pandas_udf("long")
    def by_iterator(parts: Iterator[pd.Series]) -> Iterator[pd.Series]:
        for n in parts:
            if (n == 3).any():
                raise SystemExit("half \ud83d a sign")
            yield n

    def by_group(key: tuple[Any, ...], frame: pd.DataFrame) -> pd.DataFrame:
        if (frame["n"] == 4).any():
            raise BaseException("half \ud83d a sign")
        return frame

    schema = "id STRING, token STRING, n LONG"

    def transform(jobs: DataFrame) -> DataFrame:
        made = jobs.select("id", "token", by_iterator(by_row("data.n")).alias("n"))
        return made.groupBy("n").applyInPandas(by_group, schema).withColumnRenamed("n", "returnvalue")

    by_row(f.lit(0))  # Spark caches the result of the first call of a UDF.
    queue.add_many(NewJob({"n": n}) for n in range(8))
    worker = start(transform, payload_schema="n LONG")
    assert work_off(queue) == {"completed": 4, "failed": 4}
    assert {n: job.failed_reason for n, job in by_n(queue, "failed").items()} == {
        1: "SystemExit",
        2: "ValueError: half \ufffd a sign",
        3: "SystemExit: half \ufffd a sign",
        4: "BaseException: half \ufffd a sign",
    }
    assert worker.status().state == "running"
