"""Terms of jobs in every dialect: until when they may start, whether they may run twice, how long their locks last.

Every test runs twice: with each script sent once, and with each script sent again as if its reply had been lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spark_bull.core.model.jobs import NewJob
from spark_bull.core.model.outcomes import Delayed, Outcomes
from spark_bull.core.model.read_jobs import Change
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.work.verbs import Promoted, promote_due
from tests.support.jobs import HOUR
from tests.support.work_bench import WorkBench, completed, failed_for, not_bull_1, only_bullmq, rescue_all

#: A time that has passed.
PAST = 1


def expire_all(bench: WorkBench) -> list[Promoted]:
    """Runs the script of the promoter until no further job is due or expires."""
    replies = [promote_due(bench.handle)]
    while replies[-1].more:
        replies.append(promote_due(bench.handle))
    return replies


def later(bench: WorkBench, job_id: str) -> None:
    """Lets the time pass after which a job expires."""
    bench.client.hset(bench.handle.keys.job(job_id), "expireAt", str(PAST))
    bench.client.zadd(bench.key("expiry"), {job_id: PAST}, xx=True)


def fail_unrun(bench: WorkBench) -> None:
    """Fails the jobs with a deferred failure, as a worker does that claims them."""
    claim = bench.claim(100)
    assert {job.deferred_failure for job in claim.jobs} <= {"expired"}
    if claim.jobs:
        bench.work(failed_for(claim, "expired"))


def reasons(bench: WorkBench, ids: list[str]) -> list[str | None]:
    return [bench.field(job_id, "failedReason") for job_id in ids]


# expiry


@pytest.mark.parametrize("term", [{"expire_at": PAST}, {"expire_after_ms": 5, "timestamp": 1_000}])
def test_a_claim_runs_no_job_that_has_expired(bench: WorkBench, term: dict[str, int]) -> None:
    gone, kept = bench.add(2, **term), bench.add(2)
    claim = bench.claim()
    assert [job.id for job in claim.jobs if job.deferred_failure is None] == kept
    if bench.bullmq:
        assert [(job.id, job.deferred_failure) for job in claim.jobs[:2]] == [(job_id, "expired") for job_id in gone]
    else:
        assert (reasons(bench, gone), bench.counts()["failed"]) == (["expired"] * 2, 2)


def test_the_promoter_fails_jobs_that_have_expired(bench: WorkBench) -> None:
    gone, kept = bench.add(3, expire_at=PAST), bench.add(2, expire_after_ms=HOUR)
    replies = expire_all(bench)
    assert sum(reply.expired for reply in replies) == 3 or bench.twice
    assert replies[-1].next_due is not None
    assert (bench.counts(), reasons(bench, gone)) == ({"wait": 2, "failed": 3}, ["expired"] * 3)
    assert [job.id for job in bench.claim().jobs] == kept
    assert not bench.client.exists(bench.key("expired"))


@only_bullmq
def test_the_promoter_fails_expired_jobs_wherever_they_are_in_the_list(bench: WorkBench) -> None:
    """No worker takes jobs: thousands of others stay before and between those that expire."""
    count = 12_000
    jobs = [NewJob({"n": n}, expire_at=PAST if n in {0, 7_000, 7_001, count - 1} else None) for n in range(count)]
    ids = bench.queue.add_many(jobs).ids
    expired = sum(reply.expired for reply in expire_all(bench))
    assert expired == 4 or bench.twice
    assert bench.counts() == {"wait": count - 4, "failed": 4}
    assert not bench.client.exists(bench.key("expired"), bench.key("expiry"), bench.key("expiry_position"))
    assert [job.id for job in bench.claim(2).jobs] == ids[1:3]


@only_bullmq
@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_the_promoter_pauses_after_jobs_that_were_far_from_both_ends_of_a_list(bench: WorkBench, place: str) -> None:
    """To remove them takes Redis longer."""
    others = [str(n) for n in range(1_000, 151_000)]
    halves_before = {"first": 0, "middle": 1, "last": 2}[place]
    for _ in range(halves_before):
        bench.client.lpush(bench.key("wait"), *others)
    # One more than a call fails.
    gone = bench.add(101, expire_at=PAST)
    for _ in range(2 - halves_before):
        bench.client.lpush(bench.key("wait"), *others)
    while not bench.counts().get("failed"):
        promote_due(bench.handle)
    assert bench.counts()["failed"] == 100
    pause = bench.client.zscore(bench.key("expiry"), "") - int(bench.field(gone[0], "finishedOn") or 0)
    assert (pause > 0) == (place == "middle")


@only_bullmq
def test_jobs_expire_in_a_paused_queue(bench: WorkBench) -> None:
    (gone, _) = bench.add(1, expire_at=PAST) + bench.add(1)
    bench.queue.pause()
    expire_all(bench)
    assert reasons(bench, [gone]) == ["expired"]
    bench.queue.resume()
    assert bench.counts() == {"wait": 1, "failed": 1}


@only_bullmq
def test_an_expired_job_that_a_worker_fails_first_is_forgotten(bench: WorkBench) -> None:
    """Its id is taken by a new job, which stays."""
    bench.add(1, job_id="a", expire_at=PAST)
    bench.work(failed_for(bench.claim(), "expired"))
    bench.client.sadd(bench.key("expired"), "a")
    bench.queue.remove("a")
    bench.add(1, job_id="a")
    expire_all(bench)
    assert bench.counts() == {"wait": 1}
    assert not bench.client.exists(bench.key("expired"))


def test_jobs_expire_between_others_that_keep_their_order_and_before_they_are_due(bench: WorkBench) -> None:
    jobs = [NewJob({"n": n}, expire_at=PAST if n % 3 else None) for n in range(12)]
    ids = bench.queue.add_many(jobs).ids
    (delayed,) = bench.add(1, delay=HOUR, expire_after_ms=2 * HOUR)
    later(bench, delayed)
    expire_all(bench)
    claim = bench.claim(100)
    assert [job.id for job in claim.jobs] == ids[::3]
    assert reasons(bench, [delayed]) == ["expired"]


@not_bull_1
def test_a_job_with_a_priority_expires(bench: WorkBench) -> None:
    (gone,) = bench.add(1, priority=3, expire_at=PAST)
    (kept,) = bench.add(1, priority=3)
    expire_all(bench)
    assert [job.id for job in bench.claim().jobs if job.deferred_failure is None] == [kept]
    assert not bench.client.zscore(bench.key("priority"), gone)


def test_a_job_that_has_started_does_not_expire(bench: WorkBench) -> None:
    (job_id,) = bench.add(1, expire_after_ms=HOUR)
    first = bench.claim()
    later(bench, job_id)
    expire_all(bench)
    rescue_all(bench.handle, [job_id])
    again = bench.claim()
    assert [(job.id, job.deferred_failure) for job in (*first.jobs, *again.jobs)] == [(job_id, None)] * 2
    bench.work(completed(again))
    assert bench.counts() == {"completed": 1}


def test_a_claim_says_when_jobs_expire_that_start_for_the_first_time(bench: WorkBench) -> None:
    (soon, plain) = bench.add(1, expire_after_ms=HOUR) + bench.add(1)
    claim = bench.claim()
    times = {job.id: job.expire_at for job in claim.jobs}
    assert times == {soon: claim.jobs[0].timestamp + HOUR, plain: None}
    bench.work(Outcomes(claim.token, unstarted=[soon]))
    assert {job.id: job.expire_at for job in bench.claim().jobs} == {soon: times[soon]}
    rescue_all(bench.handle, [soon])
    assert {job.id: job.expire_at for job in bench.claim().jobs if job.id == soon} == {soon: None}


def test_a_job_that_has_failed_does_not_expire_when_it_is_retried(bench: WorkBench) -> None:
    (failed, gone) = bench.add(1, expire_after_ms=HOUR) + bench.add(1, expire_at=PAST)
    bench.add(1, expire_after_ms=HOUR)
    expire_all(bench)
    claim = bench.claim(2)
    bench.work(failed_for(claim, "oops"))
    later(bench, failed)
    bench.client.zadd(bench.key("expiry"), {failed: PAST})
    for job_id in (failed, gone):
        bench.queue.retry(job_id)
    expire_all(bench)
    runs = {job.id: (job.deferred_failure, job.expire_at) for job in bench.claim().jobs}
    assert (runs[failed], runs[gone]) == ((None, None), (None, None))


@not_bull_1
def test_a_job_does_not_expire_with_an_earlier_one_or_a_duplicate_of_its_id(bench: WorkBench) -> None:
    bench.add(1, job_id="a", expire_after_ms=HOUR)
    bench.queue.remove("a")
    for term in ({}, {"expire_at": PAST}):
        bench.add(1, job_id="a", **term)
        bench.client.zadd(bench.key("expiry"), {"a": PAST}, xx=True)
        expire_all(bench)
    assert [job.deferred_failure for job in bench.claim().jobs] == [None]


def test_jobs_that_are_gone_are_forgotten_when_they_expire(bench: WorkBench) -> None:
    (done, removed) = bench.add(2, expire_after_ms=HOUR)
    bench.work(completed(bench.claim(1)))
    bench.queue.remove(removed)
    for job_id in (done, removed):
        bench.client.zadd(bench.key("expiry"), {job_id: PAST}, xx=True)
    expire_all(bench)
    assert (bench.counts(), bench.client.exists(bench.key("expiry"), bench.key("expired"))) == ({"completed": 1}, 0)


def test_plain_jobs_leave_no_trace_of_expiry(bench: WorkBench) -> None:
    bench.add(2)
    expire_all(bench)
    assert not bench.client.exists(bench.key("expiry"), bench.key("expired"))
    assert not any(b"expire" in name for name in bench.client.hgetall(bench.handle.keys.job("1")))


@only_bullmq
def test_an_expired_child_tells_its_parent(bench: WorkBench) -> None:
    child: dict[str, Any] = {"expire_at": PAST, "parent": {"queue": "q", "id": "p", "onFailure": "ignore"}}
    bench.add(1, job_id="p", delay=HOUR)
    bench.add(1, **child)
    expire_all(bench)
    fail_unrun(bench)
    assert list(bench.client.hvals(bench.handle.keys.children_failures("p"))) == [b"expired"]


# at most once


def test_a_job_that_may_run_once_fails_when_it_stalls(bench: WorkBench) -> None:
    (once, often) = bench.add(1, delivery="at-most-once") + bench.add(1)
    claim = bench.claim()
    assert [job.stalled_counter for job in claim.jobs] == [0, 0]
    rescue_all(bench.handle, [job.id for job in claim.jobs], max_stalled=1)
    again = bench.claim()
    assert [job.id for job in again.jobs if job.deferred_failure is None] == [often]
    deferred = [job.deferred_failure for job in again.jobs if job.id == once]
    assert (deferred if bench.bullmq else reasons(bench, [once])) == ["job stalled more than allowable limit"]
    assert [job.stalled_counter for job in again.jobs] == [1] * len(again.jobs)
    found = bench.queue.job(once)
    assert (found.stalled_counter, found.opts["attempts"], found.opts["delivery"]) == (1, 1, "at-most-once")


@pytest.mark.parametrize("taker", ["claim", "promoter"])
@pytest.mark.parametrize("is_seen", [False, True])
def test_a_job_that_was_returned_unstarted_expires(bench: WorkBench, taker: str, is_seen: bool) -> None:
    """Also when a promoter has seen that its time came while it was claimed, and when nobody else claims it."""
    (gone,) = bench.add(1, delivery="at-most-once", expire_after_ms=HOUR)
    claim = bench.claim()
    later(bench, gone)
    if is_seen:
        expire_all(bench)
    bench.work(Outcomes(claim.token, unstarted=[gone]))
    # A promoter does not need a claim.
    (expire_all if taker == "promoter" else fail_unrun)(bench)
    assert reasons(bench, [gone]) == ["expired"]
    assert not bench.client.hexists(bench.handle.keys.job(gone), "expireAt")


@pytest.mark.parametrize("kind", ["delayed", "returned"])
def test_a_job_that_has_started_does_not_expire_when_it_is_claimed_again_and_returned(
    bench: WorkBench, kind: str
) -> None:
    """A promoter has seen its time come while it ran. Bull counts no starts."""
    (job_id,) = bench.add(1, expire_after_ms=HOUR)
    claim = bench.claim()
    later(bench, job_id)
    expire_all(bench)
    ended = {"delayed": [Delayed(job_id, PAST)], "returned": [job_id]}
    bench.work(Outcomes(claim.token, **{kind: ended[kind]}))
    expire_all(bench)
    bench.work(Outcomes(bench.claim().token, unstarted=[job_id]))
    expire_all(bench)
    assert [(job.id, job.deferred_failure) for job in bench.claim().jobs] == [(job_id, None)]


@pytest.mark.parametrize("is_over", [False, True])
def test_a_job_that_is_moved_keeps_its_terms_unless_its_time_has_come(
    bench: WorkBench, open_queue: Callable[..., BullQueue], is_over: bool
) -> None:
    (job_id,) = bench.add(1, delivery="at-most-once", expire_after_ms=HOUR)
    if is_over:
        later(bench, job_id)
        expire_all(bench)
        fail_unrun(bench)
    assert [one.outcome for one in bench.queue.manage([Change(job_id, "move", to="r")])] == ["done"]
    moved = WorkBench(open_queue("r", bench.queue.protocol), bench.client)
    (job,) = moved.queue.page("wait")
    assert moved.field(job.id, "stc", "stalledCounter") == "1000000"
    assert (moved.field(job.id, "expireAt") is None) == is_over


# locks


def test_a_job_has_the_lock_duration_of_its_options(bench: WorkBench) -> None:
    (own, plain) = bench.add(1, lock_ms=7 * HOUR) + bench.add(1)
    (odd, nested) = (bench.add(1, opts=opts)[0] for opts in ({"x": '"lockMs":5'}, {"x": {"lockMs": 5}}))
    bench.claim()
    left = {job_id: bench.client.pttl(bench.handle.keys.lock(job_id)) / HOUR for job_id in (own, plain, odd, nested)}
    assert 6 < left[own] <= 7
    assert all(0 < left[job_id] <= 1 for job_id in (plain, odd, nested))
