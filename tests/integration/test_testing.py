"""spark_bull.run.testing: an empty Redis per test, and jobs that run in the thread of a test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import get_ident
from typing import Any

import pytest

from spark_bull import EmbeddedRedis, NewJob, OptionError, ReturnedError, SparkBullError, UnrecoverableError
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.run.job.running_job import RunningJob
from spark_bull.run.testing import JobOutcome, process_all, redis  # noqa: F401 - a fixture


@pytest.fixture(params=["bullmq"])
def queue(redis: EmbeddedRedis, request: pytest.FixtureRequest) -> Iterator[BullQueue]:  # noqa: F811
    with BullQueue("mail", url=redis.url, protocol=request.param) as queue:
        yield queue


def act(job: RunningJob) -> Any:
    """Returns or raises what the payload says."""
    if job.data.get("more"):
        return BullQueue(job.handle.keys.queue, url=job.handle.connection.settings.url).add({"value": "added"})
    if job.data.get("fails", 0) > job.attempts_made:
        raise ValueError(f"attempt {job.attempts_made + 1}")
    return job.data.get("value")


@pytest.mark.parametrize("queue", ["bull-1", "bull", "bullmq"], indirect=True)
def test_jobs_are_processed_in_order_and_their_outcomes_are_stored(queue: BullQueue) -> None:
    queue.add_many([NewJob({"value": [1]}), NewJob({"fails": 1}, attempts=2), NewJob({"fails": 9})])
    first, retried, failed = sorted(process_all(queue, act), key=lambda outcome: int(outcome.id))
    assert (first.state, first.returnvalue, first.error) == ("completed", [1], None)
    assert (retried.state, retried.attempts, retried.failed_reason) == ("completed", 2, None)
    assert (failed.state, failed.failed_reason) == ("failed", "attempt 1")
    assert isinstance(failed.error, ValueError)
    assert (queue.counts()["completed"], queue.counts()["failed"]) == (2, 1)


def test_jobs_that_wait_for_an_attempt_run_at_once_if_delayed_is_given(queue: BullQueue) -> None:
    queue.add({"fails": 2, "value": 7}, attempts=5, backoff=3_600_000)
    [outcome] = process_all(queue, act)
    assert (outcome.state, outcome.attempts) == ("delayed", 1)
    [outcome] = process_all(queue, act, delayed=True)
    assert (outcome.state, outcome.returnvalue, outcome.attempts) == ("completed", 7, 2)
    assert process_all(queue, act) == []


def test_results_that_are_encrypted_and_stored_elsewhere_are_opened(redis: EmbeddedRedis, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "key").write_bytes(bytes(32))
    keeping = {"encrypt_with": f"a=file:{tmp_path / 'key'}", "offload_to": str(tmp_path / "jobs"), "offload_above": 500}
    queue = BullQueue("mail", url=redis.url, **keeping)
    for value in ("small", "large" * 200):
        queue.add({"value": value})
        assert process_all(queue, act)[0].returnvalue == value


def test_functions_run_in_the_thread_of_the_test_and_coroutines_in_an_event_loop(queue: BullQueue) -> None:
    async def state_of(job: RunningJob) -> Any:
        return job.state

    queue.add({}, name="here")
    assert process_all(queue, lambda _: get_ident())[0].returnvalue == get_ident()
    queue.add_many([NewJob({}), NewJob({})])
    assert [outcome.returnvalue for outcome in process_all(queue, state_of, setup=lambda: "made")] == ["made", "made"]


def test_a_job_that_always_returns_itself_is_an_error(queue: BullQueue) -> None:
    def again(_job: RunningJob) -> None:
        raise ReturnedError

    queue.add({})
    with pytest.raises(SparkBullError, match="expected no job in queue mail after 5 attempts"):
        process_all(queue, again, most_attempts=5)
    assert queue.counts()["wait"] == 1
    with pytest.raises(OptionError, match="expected `processor`"):
        process_all(queue, None)


def test_the_last_attempt_that_is_allowed_is_no_error_if_no_job_is_left(queue: BullQueue) -> None:
    queue.add_many([NewJob({"value": 1}), NewJob({"fails": 1}, attempts=2, backoff=3_600_000)])
    assert len(process_all(queue, act, most_attempts=2)) == 2
    assert len(process_all(queue, act, most_attempts=1, delayed=True)) == 1
    queue.add({"fails": 1}, attempts=2, backoff=3_600_000)
    with pytest.raises(SparkBullError, match="expected no job in queue mail after 1 attempts"):
        process_all(queue, act, most_attempts=1, delayed=True)


def test_retry_overrides_the_attempts_of_a_job_and_an_unrecoverable_error_ends_them(queue: BullQueue) -> None:
    def refuse(_job: RunningJob) -> None:
        raise UnrecoverableError("no")

    queue.add({"fails": 9}, attempts=5)
    assert [(one.state, one.attempts) for one in process_all(queue, act, retry={"ValueError": 2})] == [("failed", 2)]
    queue.add({}, attempts=3)
    assert [(one.state, one.attempts) for one in process_all(queue, refuse)] == [("failed", 1)]


def test_each_test_begins_with_an_empty_redis_and_jobs_that_a_job_adds_are_processed_too(queue: BullQueue) -> None:
    assert process_all(queue, act) == []
    queue.add({"more": True}, name="send")
    outcomes = [JobOutcome("1", "send", "completed", "2"), JobOutcome("2", "__default__", "completed", "added")]
    assert process_all(queue, act) == outcomes
