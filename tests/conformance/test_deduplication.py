"""When a job with a deduplication id is added, and which one: the policies of docs/howto/dispatch.md."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from spark_bull.core.errors import DelayedError
from spark_bull.core.model.outcomes import Outcomes
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.work.claim import work
from spark_bull.run.job.job_runner import Result
from spark_bull.run.job.outcome_policy import OutcomePolicy
from spark_bull.run.job.running_job import RunningJob
from tests.support.jobs import HOUR
from tests.support.wait import wait_until
from tests.support.work_bench import CLAIM_SETTINGS, FLAVOURS

each_dialect = pytest.mark.parametrize("once", ["bull", "bullmq-6"], indirect=True)
each_version = pytest.mark.parametrize("once", ["bullmq-5", "bullmq-6"], indirect=True)


@dataclass
class Once:
    """A queue, and a worker that is driven step by step. The payload of a job is its number."""

    queue: BullQueue
    running: list[RunningJob] = field(default_factory=list)

    def add(self, number: int, rule: Any = "x", **properties: Any) -> bool:
        """Adds a job; returns whether it has become a job."""
        added_id = self.queue.add(number, deduplication=rule, **properties)
        job = self.queue.job(added_id)
        return job is not None and job.data == number

    def start(self) -> RunningJob:
        claimed = work(self.queue.handle, CLAIM_SETTINGS, None, 1, token="t")
        self.running.append(RunningJob(claimed.jobs[0], self.queue.handle, "t"))
        return self.running[-1]

    def end(self, error: Exception | None = None) -> None:
        """Ends the job that was started last."""
        handle, outcomes = self.queue.handle, Outcomes("t")
        result = Result(self.running.pop(), None, error)
        OutcomePolicy().record(outcomes, handle.dialect, result, handle.connection.now_ms())
        work(handle, CLAIM_SETTINGS, outcomes, 0)

    def numbers(self, state: str = "wait") -> list[int]:
        return [job.data for job in self.queue.page(state)]


@pytest.fixture(params=["bullmq-6"])
def once(request: pytest.FixtureRequest, open_queue: Callable[..., BullQueue]) -> Once:
    return Once(open_queue(**FLAVOURS[request.param]))


def test_a_job_can_free_its_id_when_it_starts_and_a_delayed_attempt_keeps_it(once: Once) -> None:
    once.add(1)
    once.start()
    once.end(DelayedError(HOUR))
    assert not once.add(2)
    once.queue.promote("1")
    job = once.start()
    assert job.remove_deduplication_key() is True
    assert job.remove_deduplication_key() is False
    assert once.add(3)
    assert not once.add(4)
    once.end()
    assert not once.add(5), "the job that has ended no longer had the id"
    assert once.numbers() == [3]
    once.queue.drain()
    once.queue.add(6)
    assert once.start().remove_deduplication_key() is False


@each_dialect
def test_an_id_can_be_taken_for_as_long_as_its_job_is_delayed(once: Once) -> None:
    assert once.add(1, {"id": "x", "ttl": 1}, delay=1)
    wait_until(lambda: once.queue.deduplication_job_id("x") is None, "the id to expire")
    assert once.add(2, {"id": "x", "ttl": HOUR}, delay=HOUR)
    assert not once.add(3, {"id": "x", "ttl": HOUR}, delay=HOUR)


@pytest.mark.parametrize("once", ["bull", "bullmq-5", "bullmq-6"], indirect=True)
@pytest.mark.parametrize("removed", [False, True])
def test_an_id_with_a_ttl_outlives_its_job(once: Once, removed: bool) -> None:
    rule = {"id": "x", "ttl": HOUR}
    assert once.add(1, rule, remove_on_complete=removed)
    once.start()
    once.end()
    assert (once.queue.job("1") is None) is removed
    assert not once.add(2, rule)
    assert 0 < once.queue.handle.connection.call("PTTL", once.queue.handle.keys.deduplication("x")) <= HOUR


@each_version
@pytest.mark.parametrize("held", [{}, {"ttl": 60_000}, {"ttl": 60_000, "extend": True}])
def test_a_busy_id_runs_when_the_longest_delay_since_its_first_job_is_over(once: Once, held: dict[str, Any]) -> None:
    rule = {"id": "x", "replace": True, "maxDelay": 100_000, **held}
    first = once.queue.handle.connection.now_ms()
    for number, age, left in [(1, 0, 60_000), (2, 50_000, 50_000), (3, 90_000, 10_000), (4, 120_000, 0)]:
        assert once.add(number, rule, delay=60_000, timestamp=first + age)
        (job,) = [*once.queue.page("delayed"), *once.queue.page("wait")]
        assert (job.data, job.delay, job.opts["delay"]) == (number, left, left)
        if "extend" in held:
            assert once.queue.handle.connection.call("PTTL", once.queue.handle.keys.deduplication("x")) <= max(1, left)
    assert once.start().data == 4
    once.end()
    once.queue.remove_deduplication_key("x")
    assert once.add(5, rule, delay=60_000, timestamp=first + 200_000)
    (job,) = once.queue.page("delayed")
    assert job.delay == 60_000


def test_a_delayed_job_is_delayed_anew_until_its_longest_delay_is_over(once: Once) -> None:
    rule = {"id": "x", "reschedule": True, "maxDelay": 100_000}
    first = once.queue.handle.connection.now_ms()
    assert once.add(1, rule | {"id": "y"}, delay=200_000)
    assert [(job.data, job.delay) for job in once.queue.page("delayed")] == [(1, 100_000)]
    once.queue.drain(delayed=True)
    assert once.add(1, rule, delay=60_000, timestamp=first)
    for age, left in [(30_000, 60_000), (90_000, 10_000)]:
        assert not once.add(2, rule, delay=60_000, timestamp=first + age)
        (job,) = once.queue.page("delayed")
        assert (job.data, job.delay, job.run_at) == (1, left, first + age + left)


@each_version
def test_the_first_deferred_job_is_delayed_after_the_running_one(once: Once) -> None:
    rule = {"id": "x", "deferrableBy": 30}
    once.add(1, rule)
    assert not once.add(2, rule), "a waiting job has the id"
    once.start()
    assert not any(once.add(number, rule, delay=number * HOUR) for number in (3, 4, 5))
    assert once.numbers() == once.numbers("delayed") == []
    once.end()
    (deferred,) = once.queue.page("delayed")
    assert (deferred.data, deferred.delay, deferred.opts["delay"]) == (3, 30_000, 30_000)
    assert not once.add(6, rule), "the deferred job has the id"


def test_a_job_that_is_deferred_by_0_s_runs_next(once: Once) -> None:
    rule = {"id": "x", "deferrableBy": 0}
    once.add(1, rule)
    once.start()
    once.add(2, rule, delay=HOUR)
    once.end()
    assert once.numbers() == [2]
