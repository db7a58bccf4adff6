"""Every argument of a Worker has an effect, or is refused by name."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from typing import Any
from uuid import uuid4

import pandas as pd
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from redis import Redis

from spark_bull import BullQueue, Guard, NewJob, Worker
from spark_bull.core.errors import OptionError
from spark_bull.core.model.read_jobs import Job
from spark_bull.core.options.parts import Options, options_in
from spark_bull.core.options.table import WorkOptions
from tests.spark.conftest import work_off
from tests.support.wait import wait_until
from tests.support.work_bench import WorkBench

#: Arguments that are Python objects, and have no row in the table of options.
OBJECTS = ("payload_schema", "backoff_strategy", "setup", "env", "guards")
#: test_payloads.py shows their effects.
OF_PAYLOADS = ("encrypt_with", "offload_to", "offload_above")
_OPTIONS = options_in(WorkOptions).keys() - {row.attribute for row in options_in(Options).values()}
ARGUMENTS = [*(name for name in sorted(_OPTIONS) if name not in OF_PAYLOADS), *OBJECTS]

#: A guard that looks, and never pauses.
GUARD = Guard("*", "failed >= 1000 over 1h")
#: Arguments and their values.
GIVEN: dict[str, Any] = {
    "slots": 2,
    "chunk_size": 5,
    "timeout_ms": 10_000,
    "lock_ms": 100_000,
    "worker_name": "sparky",
    "limiter": {"max": 1_000, "duration": 600_000},
    "group": {"by": "kind", "max": 1_000, "duration_ms": 600_000},
    "remove_on_complete": {"count": 30},
    "remove_on_fail": {"count": 1},
    "metrics_minutes": 5,
    "max_stalled": 0,
    "check_ms": 300,
    "promoter": True,
    "progress": True,
    "payload_schema": "kind STRING, n LONG",
    "backoff_strategy": lambda made, kind, error, job: 10,
    "events": "ends",
    "guards": GUARD,
}
#: Arguments that test_worker.py and unit/run/worker/test_worker_options.py refuse for a UDF; for their effects, see
#: conformance/test_concurrency.py, test_setup.py and test_long_jobs.py.
FUNCTIONS_ONLY = ("concurrency", "setup", "extend_timeout_on_progress")
#: Arguments whose effects conformance/test_chunks.py shows; test_worker.py the effects of `env`, `max_started` and
#: `retry`, test_shards.py the effect of `shards`, test_elastic_slots.py the effect of `target_wait_s`,
#: conformance/test_follow_ups.py the effect of `dead_letter_queue`.
ELSEWHERE = frozenset(
    ("min_chunk", "chunk_wait_ms", "max_started", "env", "shards", "retry", "target_wait_s", "dead_letter_queue")
)


@dataclass
class Life:
    """The effects of a worker with all these arguments, in Redis and on the terminal."""

    queue: BullQueue
    client: Redis
    worker: Worker
    stalled: Job
    slow: Job
    completed: list[dict[str, Any]]
    shown: str

    def key(self, name: str) -> str:
        return self.queue.handle.keys[name]

    def distinct(self, name: str) -> set[Any]:
        return {value[name] for value in self.completed}


def ended(queue: BullQueue, job_id: str) -> Job | None:
    job = queue.job(job_id)
    return job if job is not None and job.state in ("completed", "failed") else None


@pytest.fixture(scope="module")
def life(spark: SparkSession, client: Redis, redis_url: str) -> Iterator[Life]:
    """What a worker with all these arguments has done."""
    prefix = f"test-{uuid4().hex[:12]}"
    yield live(spark, client, redis_url, prefix)
    for key in client.scan_iter(match=f"{prefix}:*", count=1000):
        client.unlink(key)


def live(spark: SparkSession, client: Redis, url: str, prefix: str) -> Life:
    locks = f"{prefix}:q:*:lock"

    @f.pandas_udf("struct<jobs: int, lock: long, n: long>")
    def process(kind: pd.Series, n: pd.Series) -> pd.DataFrame:
        if "slow" in set(kind):
            time.sleep(600)
        if "bad" in set(kind):
            raise ValueError("bad")
        with Redis.from_url(url) as redis:
            lock = max(redis.pttl(key) for key in redis.scan_iter(match=locks, count=1000))
        return pd.DataFrame([{"jobs": len(n), "lock": lock, "n": one} for one in n])

    queue = BullQueue("q", url=url, prefix=prefix, protocol="bullmq")
    # The job of a worker that has died.
    stalled = queue.add({"kind": "good", "n": -1})
    WorkBench(queue, client, twice=False).claim(1)
    client.delete(queue.handle.keys.lock(stalled))
    arguments = {**GIVEN, "url": url, "prefix": prefix}
    with redirect_stderr(StringIO()) as shown, Worker(spark, "q", process, **arguments) as worker:
        stalled_job = wait_until(lambda: ended(queue, stalled), "the stalled job to fail")
        slow = queue.add({"kind": "slow", "n": -2})
        slow_job = wait_until(lambda: ended(queue, slow), "the slow job to fail")
        queue.pause()
        queue.add_many(NewJob({"kind": "good", "n": n}) for n in range(40))
        backoff = {"type": "mine"}
        queue.add_many(NewJob({"kind": "bad", "n": n}, attempts=3, backoff=backoff) for n in range(2))
        queue.resume()
        work_off(queue)
    values = [job.parsed("returnvalue") for job in queue.page("completed")]
    return Life(queue, client, worker, stalled_job, slow_job, values, shown.getvalue())


def fails_once_stalled(life: Life) -> bool:
    return life.stalled.failed_reason == "job stalled more than allowable limit"


def uses_the_strategy(life: Life) -> bool:
    # Without the strategy, an unknown type allows no second attempt.
    return [(job.failed_reason, job.attempts_made) for job in life.queue.page("failed")] == [("bad", 3)]


def tells_of_no_start(life: Life) -> bool:
    """Only the job of the worker that has died has the event."""
    told = [fields[b"event"] for _, fields in life.client.xrange(life.key("events"))]
    return told.count(b"active") == 1 and told.count(b"completed") == 40


EFFECTS: dict[str, Callable[[Life], bool]] = {
    "slots": lambda life: life.client.hlen(life.queue.handle.keys.slots(life.worker.id)) == 2,
    "chunk_size": lambda life: max(life.distinct("jobs")) == 5,
    "timeout_ms": lambda life: "10,000 ms at most (its timeout)" in str(life.slow.failed_reason),
    "lock_ms": lambda life: 30_000 < max(life.distinct("lock")) <= 100_000,
    "worker_name": lambda life: {job.processed_by for job in life.queue.page("completed")} == {"sparky"},
    "limiter": lambda life: int(life.client.get(life.key("limiter")) or 0) >= 40,
    "group": lambda life: sum(map(int, life.client.hvals(life.key("group_started")))) >= 40,
    "remove_on_complete": lambda life: life.queue.counts()["completed"] == 30,
    "remove_on_fail": lambda life: life.queue.counts()["failed"] == 1,
    "metrics_minutes": lambda life: int(life.client.hget(life.key("metrics_completed"), "count") or 0) == 40,
    "max_stalled": fails_once_stalled,
    "check_ms": fails_once_stalled,
    "promoter": fails_once_stalled,
    "progress": lambda life: "completed" in life.shown,
    "payload_schema": lambda life: len(life.distinct("n")) == 30,
    "backoff_strategy": uses_the_strategy,
    "events": tells_of_no_start,
    "guards": lambda life: life.client.exists(life.queue.handle.keys.guard(GUARD.id)) == 1,
}


def test_each_argument_has_an_effect(life: Life) -> None:
    shown = [argument for argument in ARGUMENTS if argument not in (*FUNCTIONS_ONLY, *ELSEWHERE)]
    without = [argument for argument in shown if not EFFECTS[argument](life)]
    assert not without, (
        f"stalled: {life.stalled.failed_reason}, slow: {life.slow.failed_reason}, completed: {life.completed}"
    )


def test_telemetry_that_cannot_be_sent_is_refused(spark: SparkSession, redis_url: str) -> None:
    for name, one in (("tracer", TracerProvider().get_tracer("driver")), ("meter", MeterProvider())):
        with pytest.raises(OptionError, match="which cannot be sent to the executors"):
            Worker(spark, "q", print, url=redis_url, **{name: one})
