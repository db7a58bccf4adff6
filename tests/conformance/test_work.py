"""Claim, settle, extend, promote and rescue in every dialect.

Every test runs twice: with each script sent once, and with each script sent again as if its reply had been lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from spark_bull.core.errors import JobMissing
from spark_bull.core.model.jobs import NewJob
from spark_bull.core.model.limits import GroupLimits, Limiter, WorkSettings
from spark_bull.core.model.outcomes import Claim, Delayed, Failed, Outcomes, RejectedOutcome, Retried
from spark_bull.core.queue.handle.report import add_log, update_data, update_progress
from spark_bull.core.queue.work import claim as claims
from spark_bull.core.queue.work import verbs
from spark_bull.core.queue.work.claim import extend, read_claimed, relock, rescue, unpack_claimed
from spark_bull.core.queue.work.claim_ledger import ClaimLedger, new_lock_token
from spark_bull.core.queue.work.verbs import promote_due
from spark_bull.run.claims.claimer import Claimer
from spark_bull.run.job.job_options import keep_rule
from spark_bull.run.job.outcomes import failure
from spark_bull.spark.work.claim_batch import SettleTokens
from tests.support.jobs import DAY, HOUR
from tests.support.traffic import published
from tests.support.without_spark import ClaimingQuery
from tests.support.work_bench import CLAIM_SETTINGS, WorkBench, completed, failed_for, not_bull_1, only_bullmq


def make_due(bench: WorkBench, ids: Iterable[str]) -> None:
    """Moves the due times of delayed jobs two hours back, so that no test waits for a time."""
    for job_id in ids:
        bench.client.zincrby(bench.key("delayed"), -2 * HOUR * 4096, job_id)


# claiming


def test_a_claim_takes_the_oldest_jobs_and_locks_them(bench: WorkBench) -> None:
    empty = bench.claim()
    assert (empty.jobs, empty.lost, empty.more, empty.next_due) == ([], [], False, None)
    ids = bench.add(5)
    claim = bench.claim(3)
    assert [job.id for job in claim.jobs] == ids[:3]
    assert [json.loads(job.data) for job in claim.jobs] == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert all(job.timestamp > 0 and job.attempts_made == 0 for job in claim.jobs)
    assert bench.counts() == {"wait": 2, "active": 3}
    assert bench.locks(ids) == [True] * 3 + [False] * 2
    assert claim.more
    assert 0 < bench.client.pttl(bench.handle.keys.lock(ids[0])) <= CLAIM_SETTINGS.lock_ms


def test_a_field_that_no_claimed_job_has_is_returned_as_one_value(bench: WorkBench) -> None:
    ids, fields = bench.add(3), bench.handle.dialect.claim_fields
    update_progress(bench.handle, ids[1], "42")
    (taken,) = ClaimLedger(bench.handle, "reader").claim(WorkSettings("reader"), 3)
    columns = unpack_claimed(taken.portion.packed).columns
    assert columns[fields["progress"]][1] == "42"
    assert not isinstance(columns[fields["stacktrace"]], list)


def test_an_attempt_after_a_retry_sees_what_earlier_ones_have_left(bench: WorkBench) -> None:
    (job_id,) = bench.add()
    claim = bench.claim()
    update_progress(bench.handle, job_id, "42")
    bench.work(failed_for(claim, "oops"))
    bench.queue.retry(job_id, reset_attempts=True)
    (job,) = bench.claim().jobs
    assert (job.progress, job.stacktrace, job.attempts_made) == ("42", '["trace"]', 0)
    decided = failure(bench.handle.dialect, job, "oops again", stack="a further trace")
    assert json.loads(decided.stack) == ["trace", "a further trace"]


@only_bullmq
def test_a_job_that_lacks_a_field_of_new_jobs_is_read_whole(bench: WorkBench) -> None:
    (job_id,) = bench.add()
    bench.client.hdel(bench.handle.keys.job(job_id), "delay", "priority")
    update_progress(bench.handle, job_id, "42")
    (job,) = bench.claim().jobs
    assert (job.name, job.progress, job.priority, job.attempts_started) == ("__default__", "42", 0, 1)


@only_bullmq
def test_what_jobs_of_a_worker_with_a_name_have_got_since_they_were_added_counts_when_they_complete(
    bench: WorkBench,
) -> None:
    queue, keys = bench.queue, bench.handle.keys
    named = WorkSettings("slot", lock_ms=HOUR, worker="w")
    queue.add({}, job_id="parent", delay=HOUR)
    for job_id in ("plain", "late", "retried", "gone"):
        queue.add({}, job_id=job_id, attempts=2)
    queue.add({}, job_id="early", parent={"queue": queue.name, "id": "parent"})
    queue.add({}, job_id="single", deduplication={"id": "x"})
    claim = bench.claim(10, work_settings=named)
    assert len(claim.jobs) == 6
    queue.add({}, job_id="late", parent={"queue": queue.name, "id": "parent"})
    bench.client.delete(keys.job("gone"))
    outcomes = Outcomes(claim.token, retried=[Retried("retried", "bad", "[]", 0, False)])
    for job in claim.jobs:
        if job.id != "retried":
            outcomes.complete(job.id, json.dumps(job.id))
    claim = bench.work(outcomes, 10, work_settings=named)
    assert claim.lost == [RejectedOutcome("gone", "missing")]
    assert [job.id for job in claim.jobs] == ["retried"]
    bench.work(completed(claim), work_settings=named)
    assert bench.client.hgetall(keys.children_values("parent")) == {
        keys.job(job_id).encode(): json.dumps(job_id).encode() for job_id in ("early", "late")
    }
    assert bench.client.keys(f"{keys.base}de:*") == []
    assert [bench.field(job_id, "atm") for job_id in ("plain", "late", "early", "single", "retried")] == [*"11112"]
    assert bench.counts() == {"completed": 5, "delayed": 1}


def test_a_claim_ends_at_its_byte_limit_but_takes_at_least_one_job(bench: WorkBench) -> None:
    ids = bench.queue.add_many([NewJob("x" * 1000) for _ in range(5)]).ids
    assert [job.id for job in bench.claim(5, most_bytes=1).jobs] == ids[:1]
    assert [job.id for job in bench.claim(5, most_bytes=1500).jobs] == ids[1:3]


def test_nothing_is_claimed_after_the_stop_signal(bench: WorkBench) -> None:
    bench.add(2)
    work_settings = WorkSettings("slot", control=bench.handle.keys.control("w"))
    assert not bench.claim(1, work_settings=work_settings).stop
    bench.client.set(work_settings.control, "stop")
    claim = bench.claim(1, work_settings=work_settings)
    assert claim.stop
    assert claim.jobs == []


@pytest.mark.parametrize("bench", ["bull"], indirect=True)
def test_jobs_over_the_limit_are_delayed_in_bull_and_start_before_newer_ones(bench: WorkBench) -> None:
    ids = bench.add(6)
    settings = WorkSettings("slot", limiter=Limiter(2, HOUR))
    assert [job.id for job in bench.claim(6, work_settings=settings).jobs] == ids[:2]
    assert bench.counts() == {"active": 2, "delayed": 4}
    # The period is over: the first jobs are due, the others have to wait for their own.
    bench.client.delete(bench.key("limiter"))
    make_due(bench, ids[2:4])
    promote_due(bench.handle)
    newer = bench.add(1)
    assert [job.id for job in bench.claim(6, work_settings=settings).jobs] == ids[2:4]
    assert {job.id for job in bench.queue.page("delayed")} == {*ids[4:], *newer}
    assert bench.queue.counts()["wait"] == 0


@pytest.mark.parametrize("bench", ["bull"], indirect=True)
def test_jobs_over_the_limit_stay_in_wait_with_bounce_back_or_limits_of_groups(bench: WorkBench) -> None:
    bench.add(6)
    limiter, group = Limiter(2, HOUR), GroupLimits("n", concurrency=5)
    for more in ({"limiter": limiter._replace(bounce_back=True)}, {"limiter": limiter, "group": group}):
        assert len(bench.claim(6, work_settings=WorkSettings("slot", **more)).jobs) == 2
        assert bench.claim(6, work_settings=WorkSettings("slot", **more)).limited_ms > 0
        bench.client.delete(bench.key("limiter"))
    assert bench.counts() == {"active": 4, "wait": 2}


def test_the_limiter_of_a_worker_applies_to_the_whole_queue(bench: WorkBench) -> None:
    bench.add(10)
    limiter = Limiter(3, HOUR, bounce_back=bench.queue.protocol == "bull")
    slots = [WorkSettings(name, limiter=limiter) for name in ("one", "two")]
    assert len(bench.claim(2, work_settings=slots[0]).jobs) == 2
    # The period does not begin anew with the next jobs.
    bench.client.pexpire(bench.key("limiter"), HOUR // 2)
    claim = bench.claim(10, work_settings=slots[1])
    assert len(claim.jobs) == 1
    claim = bench.claim(10, work_settings=slots[0])
    assert claim.jobs == []
    assert 0 < claim.limited_ms <= HOUR // 2


@only_bullmq
def test_limits_of_the_queue_are_respected(bench: WorkBench) -> None:
    bench.add(10)
    bench.client.hset(bench.key("meta"), "concurrency", 3)
    assert len(bench.claim(5, work_settings=WorkSettings("one by one", at_once=1)).jobs) == 1
    assert len(bench.claim(5, work_settings=WorkSettings("all at once")).jobs) == 2
    assert bench.claim(10).jobs == []
    bench.client.hdel(bench.key("meta"), "concurrency")
    bench.client.hset(bench.key("meta"), mapping={"max": 1, "duration": 2 * HOUR})
    limited = WorkSettings("slot", limiter=Limiter(50, HOUR))
    assert len(bench.claim(10, work_settings=limited).jobs) == 1
    assert 0 < bench.claim(10, work_settings=limited).limited_ms <= HOUR, "the duration of the worker"
    bench.client.delete(bench.key("limiter"))
    assert len(bench.claim(10).jobs) == 1
    assert bench.claim(10).limited_ms > HOUR


def test_a_slot_with_a_limiter_claims_only_jobs_that_start_at_once(bench: WorkBench) -> None:
    bench.add(4)
    assert len(bench.claim(2, work_settings=WorkSettings("free", at_once=1)).jobs) == 2
    assert len(bench.claim(2, work_settings=WorkSettings("limited", limiter=Limiter(10, HOUR), at_once=1)).jobs) == 1


@only_bullmq
def test_the_last_job_of_a_paused_or_limited_queue_publishes_no_drained_event(bench: WorkBench) -> None:
    def finish_last(limiter: Limiter | None = None) -> None:
        bench.add()
        claim = bench.claim(1)
        if limiter is None:
            bench.queue.pause()
        bench.work(completed(claim), 5, WorkSettings("slot", limiter=limiter))

    bench.client.set(bench.key("limiter"), 9, px=HOUR)
    finish_last(limiter=Limiter(9, HOUR))
    finish_last()
    events = bench.client.xrange(bench.key("events"))
    assert b"drained" not in [event[b"event"] for _, event in events]


@pytest.mark.parametrize("bench", ["bull-1", "bull"], indirect=True)
def test_a_manually_moved_job_is_claimed_first(bench: WorkBench) -> None:
    first, second, third = bench.add(3)
    bench.client.lmove(bench.key("wait"), bench.key("active"), "RIGHT", "LEFT")
    assert [job.id for job in bench.claim(2, held=first).jobs] == [first, second]
    assert [job.id for job in bench.claim(2, held="gone").jobs] == [third]
    assert bench.counts() == {"active": 3}


# settling


def test_a_chunk_between_others_leaves_them_in_their_order(bench: WorkBench) -> None:
    for older in (1, 20, 60):
        ids = bench.add(older + 6)
        old = bench.claim(older, work_settings=WorkSettings("old"))
        between = bench.claim(3, work_settings=WorkSettings("between"))
        young = bench.claim(3, work_settings=WorkSettings("young"))
        assert bench.work(completed(between), work_settings=WorkSettings("between")).lost == []
        assert [job.id for job in bench.queue.page("active")] == [*[job.id for job in old.jobs], *ids[-3:]], older
        for others in (old, young):
            bench.work(completed(others))


@pytest.mark.parametrize("lifo", [False, True])
def test_a_retried_job_waits_again(bench: WorkBench, lifo: bool) -> None:
    first, second = bench.add(2)
    bench.work(Outcomes(bench.claim(1).token, retried=[Retried(first, "bad", '["x"]', 0, lifo)]))
    assert bench.counts() == {"wait": 2}
    jobs = bench.claim().jobs
    assert [job.id for job in jobs] == ([first, second] if lifo else [second, first])
    assert {job.id: job.attempts_made for job in jobs} == {first: 1, second: 0}


def test_a_retried_job_can_be_claimed_after_its_delay(bench: WorkBench) -> None:
    (job_id,) = bench.add()
    claim = bench.claim()
    with published(bench.client, bench.handle.keys.prefix, bench.queue.name) as messages:
        bench.work(Outcomes(claim.token, retried=[Retried(job_id, "bad", "[]", HOUR, False)]))
    # Node's queues of Bull promote the job when it is due.
    assert (bench.key("delayed") in [channel for channel, _ in messages]) is not bench.bullmq
    assert bench.counts() == {"delayed": 1}
    make_due(bench, [job_id])
    promote_due(bench.handle)
    (job,) = bench.claim().jobs
    assert (job.id, job.attempts_made) == (job_id, 1)


def test_released_jobs_are_claimed_next_in_their_old_order_and_unchanged_if_they_were_not_started(
    bench: WorkBench,
) -> None:
    ids = bench.add(3)
    before = [bench.client.hgetall(bench.handle.keys.job(job_id)) for job_id in ids]
    claim = bench.claim(work_settings=WorkSettings("slot", worker="somebody"))
    assert {bench.field(job_id, "pb") for job_id in ids} == {"somebody" if bench.bullmq else None}
    assert bench.work(Outcomes(claim.token, unstarted=ids)).lost == []
    assert [bench.client.hgetall(bench.handle.keys.job(job_id)) for job_id in ids] == before
    claim = bench.claim(2)
    assert [job.id for job in claim.jobs] == ids[:2]
    bench.work(Outcomes(claim.token, returned=ids[:2]))
    assert [job.id for job in bench.claim().jobs] == ids


@only_bullmq
def test_a_released_job_that_was_not_started_keeps_its_earlier_starts(bench: WorkBench) -> None:
    (job_id,) = bench.add(attempts=2)
    claim = bench.claim()
    bench.work(Outcomes(claim.token, retried=[Retried(job_id, "bad", "[]", 0, False)]))
    claim = bench.claim()
    bench.work(Outcomes(claim.token, unstarted=[job_id]))
    assert (bench.field(job_id, "ats"), bench.field(job_id, "atm")) == ("1", "1")
    assert bench.field(job_id, "processedOn") is not None


@not_bull_1
def test_released_prioritised_jobs_keep_their_order(bench: WorkBench) -> None:
    ids = [*bench.add(12, priority=5), *bench.add(3, priority=7), *bench.add(2)]
    if bench.bullmq:  # There, jobs without a priority come first.
        ids = ids[-2:] + ids[:-2]
    claim = bench.claim(20)
    assert bench.claim().jobs == []
    (later,), (sooner,) = bench.add(priority=5), bench.add(priority=1)
    bench.work(Outcomes(claim.token, unstarted=ids))
    if bench.bullmq:
        assert bench.queue.counts_by("priority")["prioritized"] == {1: 1, 5: 13, 7: 3}
    claim = bench.claim(4)
    bench.work(Outcomes(claim.token, unstarted=[job.id for job in claim.jobs]))
    urgent = [job_id for job_id in ids if bench.field(job_id, "priority") == "5"]
    claimed = [job.id for job in bench.claim(20).jobs]
    assert [job_id for job_id in claimed if job_id in ids] == ids
    assert claimed.index(later) == claimed.index(urgent[-1]) + 1
    assert claimed.index(sooner) == claimed.index(urgent[0]) - 1


def test_outcomes_without_a_lock_are_rejected_with_a_reason(bench: WorkBench) -> None:
    ids = bench.add(5)
    claim = bench.claim()
    keys = bench.handle.keys
    bench.client.delete(keys.lock(ids[0]))
    bench.client.set(keys.lock(ids[1]), "another")
    bench.client.delete(keys.job(ids[2]), keys.lock(ids[2]))
    bench.client.lrem(keys["active"], 1, ids[3])
    answer = bench.work(completed(claim))
    assert dict(answer.lost) == {ids[0]: "unlocked", ids[1]: "owner", ids[2]: "missing", ids[3]: "inactive"}
    assert bench.counts()["completed"] == 1


def test_a_task_that_settles_its_rows_again_counts_each_job_once(bench: WorkBench) -> None:
    ids = bench.add(4)
    claim = bench.claim()
    bench.client.set(bench.handle.keys.lock(ids[1]), "another")
    *rows, last = ({"id": job_id, "token": claim.token, "returnvalue": "1"} for job_id in ids)
    query = ClaimingQuery(bench.queue)
    assert query.settle(*rows, last | {"error": "bad"}) == {"completed": 2, "failed": 1, "lost": 1}
    assert query.settle(*rows, last | {"error": "bad"}) == {"lost": 1}
    settled = bench.client.hgetall(bench.handle.keys.settled(claim.token))
    assert settled == {b"completed": b"2", b"failed": b"1", b"lost": b"2"}


def test_a_returnvalue_that_is_no_json_fails_the_attempt_and_the_others_are_left(bench: WorkBench) -> None:
    """Also of a job that needs no reading to be completed, as its options say nothing about how long it is kept."""
    [job_id] = bench.queue.add_many([NewJob(1, attempts=3)]).ids
    claim = bench.claim(token=new_lock_token("reader"))
    token = SettleTokens(claim.token).of(claim.jobs[0].opts)
    assert ClaimingQuery(bench.queue).settle({"id": job_id, "token": token, "returnvalue": "{"}) == {"retried": 1}
    assert bench.counts() == {"wait": 1}


def test_settling_a_deleted_job_does_not_recreate_it(bench: WorkBench) -> None:
    ids = bench.add(6)
    claim = bench.claim()
    bench.client.delete(*[bench.handle.keys.job(job_id) for job_id in ids])
    outcomes = Outcomes(claim.token, returned=[ids[4]], unstarted=[ids[5]])
    outcomes.complete(claim.jobs[0].id, "1")
    outcomes.failed.append(Failed(ids[1], "bad", "[]", None, 1))
    outcomes.retried.append(Retried(ids[2], "bad", "[]", 0, False))
    outcomes.delayed.append(Delayed(ids[3], claim.now + HOUR))
    answer = bench.work(outcomes)
    assert sorted(answer.lost) == [RejectedOutcome(job_id, "missing") for job_id in ids]
    assert bench.counts() == {}
    assert bench.client.exists(*[bench.handle.keys.job(job_id) for job_id in ids]) == 0


def all_ended(claim: Claim, state: str, rules: Iterable[Any]) -> Outcomes:
    """The jobs of a claim, which have ended in this state, each with its retention rule."""
    outcomes = Outcomes(claim.token)
    for job, rule in zip(claim.jobs, rules, strict=True):
        if state == "completed":
            outcomes.complete(job.id, "1", keep_rule(rule))
        else:
            outcomes.failed.append(Failed(job.id, "bad", "[]", keep_rule(rule), 1))
    return outcomes


@pytest.mark.parametrize("state", ["completed", "failed"])
def test_retention_rules_limit_the_number_of_kept_jobs(bench: WorkBench, state: str) -> None:
    def finish(count: int, rule: Any) -> None:
        add_log(bench.handle, bench.add(count)[0], "a line")
        bench.work(all_ended(bench.claim(), state, [rule] * count))

    finish(3, True)
    if bench.queue.protocol == "bull-1":
        # Bull 1 removes completed jobs or none, and no failed ones.
        assert bench.counts() == ({} if state == "completed" else {"failed": 3})
        return
    assert bench.counts() == {}
    assert bench.client.keys(f"{bench.handle.keys.base}*:logs") == []
    finish(5, 2)
    assert bench.counts() == {state: 2}
    finish(3, {"count": 4})
    assert bench.counts() == {state: 4}
    *old, last = bench.client.zrange(bench.key(state), 0, 3)
    bench.client.zadd(bench.key(state), dict.fromkeys(old, 1_000.0))
    bench.client.zincrby(bench.key(state), -30_000, last)
    finish(1, {"age": 60})
    assert bench.counts() == {state: 2}


@not_bull_1
@pytest.mark.parametrize("state", ["completed", "failed"])
def test_of_jobs_that_end_together_the_last_ones_are_kept(bench: WorkBench, state: str) -> None:
    def finish(keeps: list[Any]) -> list[str]:
        bench.add(len(keeps))
        claim = bench.claim(len(keeps))
        claim.jobs.reverse()
        bench.work(all_ended(claim, state, keeps))
        return [job.id for job in claim.jobs]

    def kept() -> set[str]:
        return {job.id for job in bench.queue.page(state)}

    finish([None, None])
    ended = finish([1] * 12)
    assert kept() == {ended[-1]}
    more = finish([None, 2, 3, None])
    assert kept() == {*more}
    assert bench.counts() == {state: 4}
    for keeps in ([2] * 5, [None, 3, 2, None, 2]):
        ended = finish(keeps)
        assert kept() == {*ended[-2:]}


@not_bull_1
@pytest.mark.parametrize("state", ["completed", "failed"])
def test_one_call_removes_at_most_a_thousand_jobs_by_retention_rules(bench: WorkBench, state: str) -> None:
    bench.client.zadd(bench.key(state), {f"old-{n}": n + 1 for n in range(3_000)})
    bench.add(5)
    bench.work(all_ended(bench.claim(), state, [1] * 5))
    old = [job_id for job_id in bench.client.zrange(bench.key(state), 0, -1) if job_id.startswith(b"old-")]
    assert len(old) == 2_000


def test_a_ledger_records_claimed_jobs(bench: WorkBench) -> None:
    ids = bench.add(7)
    ledger = ClaimLedger(bench.handle, "reader")
    first, second = (taken.portion for taken in ledger.claim(WorkSettings("reader"), 5, 3))
    assert [unpack_claimed(portion.packed).ids for portion in (first, second)] == [ids[:3], ids[3:5]]
    assert first.token != second.token
    assert (ledger.end(), ledger.claims(1, 4)) == (5, [(first.token, ids[1:3]), (second.token, ids[3:4])])
    assert (ledger.claims(1, 3), ledger.claims(3, 3)) == ([(first.token, ids[1:3])], [])
    ledger.cut(3)
    assert (ledger.end(), ledger.claims(0, 5)) == (5, [(second.token, ids[3:5])])
    (third,) = (taken.portion for taken in ledger.claim(WorkSettings("reader"), 5))
    assert ledger.claims(4, 9) == [(second.token, ids[4:5]), (third.token, ids[5:])]
    assert [job.id for job in read_claimed(bench.handle, [*ids, "gone"])] == ids


def test_a_ledger_expires_from_its_first_claim_on(bench: WorkBench) -> None:
    bench.add(4)
    keys = [bench.handle.keys.claims("reader"), bench.handle.keys.claims_end("reader")]
    claims = ClaimLedger(bench.handle, "reader").claim(WorkSettings("reader"), 4, 2)
    for _ in range(2):
        next(claims)
        assert all(bench.client.pttl(key) > 0 for key in keys)
        # As an older version leaves a ledger whose process has died.
        assert all(bench.client.persist(key) for key in keys)


def test_nothing_is_claimed_ahead_with_a_limiter_or_while_the_queue_limits_active_jobs(bench: WorkBench) -> None:
    def ahead(reader: str, claimed: int, **limits: Any) -> list[str]:
        """The jobs that a claimer claims ahead after this number of jobs."""
        claimer = Claimer(ClaimLedger(bench.handle, reader), WorkSettings(reader, HOUR, **limits), 2)
        assert claimer.claim(claimed) == claimed
        claimer.claim_ahead(2, 2)
        return [job_id for _, ids in claimer.ledger.claims(claimed, claimer.end()) for job_id in ids]

    ids = bench.add(9)
    assert ahead("limited", 2, limiter=Limiter(100, HOUR)) == []
    assert ahead("free", 1) == ids[3:5]
    if bench.bullmq:
        bench.client.hset(bench.key("meta"), "concurrency", 8)
        assert ahead("one of many", 1) == []


def test_the_numbers_of_a_worker_are_counted_in_the_call_that_changes_its_jobs(bench: WorkBench) -> None:
    key = bench.handle.keys.counters("w")
    settings = CLAIM_SETTINGS._replace(counters=key)

    def numbers() -> dict[str, int]:
        return {name.decode(): int(number) for name, number in bench.client.hgetall(key).items()}

    bench.work(None, 10, settings)
    assert not bench.client.exists(key)
    bench.add(10)
    claim = bench.work(None, 10, settings)
    assert numbers() == {"claimed": 10}
    assert bench.client.pttl(key) > 0
    ids = [job.id for job in claim.jobs]
    bench.client.delete(bench.handle.keys.lock(ids[9]))
    outcomes = Outcomes(
        claim.token,
        failed=[Failed(ids[2], "no", "[]", None, 1)],
        retried=[Retried(ids[3], "no", "[]", HOUR, lifo=False)],
        delayed=[Delayed(ids[4], claim.now + HOUR)],
        returned=[ids[5]],
        unstarted=[ids[6]],
        waiting_for_children=[ids[7]] if bench.bullmq else [],
    )
    for job_id in (ids[0], ids[1], ids[9]):
        outcomes.complete(job_id, "1")
    bench.work(outcomes, 0, settings)
    returned = 4 if bench.bullmq else 3
    assert numbers() == {"claimed": 10, "completed": 2, "failed": 1, "retried": 1, "returned": returned, "lost": 1}
    bench.work(None, 1)
    assert numbers()["claimed"] == 10


# while a job runs


def test_only_own_locks_are_extended(bench: WorkBench) -> None:
    ids = bench.add(3)
    claim = bench.claim(work_settings=WorkSettings("slot", lock_ms=60_000))
    bench.client.sadd(bench.key("stalled"), *ids)
    bench.client.set(bench.handle.keys.lock(ids[2]), "another")
    assert extend(bench.handle, claim.token, ids, HOUR) == [ids[2]]
    assert bench.client.pttl(bench.handle.keys.lock(ids[0])) > 60_000
    assert bench.client.smembers(bench.key("stalled")) == {ids[2].encode()}


def test_own_locks_are_extended_when_a_query_takes_up_its_jobs(bench: WorkBench) -> None:
    ids = bench.add(5)
    claim = bench.claim(4, work_settings=WorkSettings("slot", lock_ms=60_000))
    locks = [bench.handle.keys.lock(job_id) for job_id in ids]
    bench.client.set(locks[1], "another", px=60_000)
    bench.client.pexpire(locks[2], 2 * HOUR)
    bench.client.delete(locks[3])
    relock(bench.handle, claim.token, ids, HOUR)
    left = [bench.client.pttl(lock) for lock in locks]
    assert 60_000 < left[0] <= HOUR
    assert left[1] <= 60_000
    assert left[2] > HOUR
    assert 60_000 < left[3] <= HOUR, "an active job without a lock is locked again"
    assert bench.locks(ids) == [True] * 4 + [False], "a waiting one is not"
    assert bench.client.get(locks[1]) == b"another"


def test_progress_logs_and_data_are_stored(bench: WorkBench) -> None:
    (job_id,) = bench.add()
    update_progress(bench.handle, job_id, "42")
    assert [add_log(bench.handle, job_id, f"line {n}", keep=2) for n in range(3)] == [1, 2, 2]
    update_data(bench.handle, job_id, '{"changed":true}')
    (job,) = bench.queue.page("wait")
    assert (job.parsed("progress"), job.parsed()) == (42, {"changed": True})
    assert bench.queue.logs(job_id) == ["line 1", "line 2"]
    for report in (update_progress, update_data, add_log):
        with pytest.raises(JobMissing, match="77"):
            report(bench.handle, "77", "1")


# promoting


def test_due_jobs_wait_in_the_order_in_which_they_are_due(bench: WorkBench) -> None:
    now = bench.handle.connection.now_ms()
    delays = {"late": 500, "early": 100, "middle": 300, "tomorrow": DAY}
    for job_id, delay in delays.items():
        bench.queue.add({}, job_id=job_id, timestamp=now, delay=HOUR + delay)
    make_due(bench, ["late", "early", "middle"])
    promoted = promote_due(bench.handle)
    assert (promoted.moved, promoted.next_due) == (3, now + HOUR + DAY)
    assert promote_due(bench.handle).moved == 0
    assert [job.id for job in bench.claim().jobs] == ["early", "middle", "late"]


def test_jobs_due_in_the_same_millisecond_stay_in_order(bench: WorkBench) -> None:
    due = bench.handle.connection.now_ms() + HOUR
    ids = bench.queue.add_many([NewJob({"n": n}, run_at=due) for n in range(300)]).ids
    make_due(bench, ids)
    while promote_due(bench.handle, limit=70).more:
        pass
    assert [job.id for job in bench.claim(300).jobs] == ids


# rescuing


def lose_worker(bench: WorkBench, count: int) -> list[str]:
    """Active jobs whose worker has died: their locks have expired."""
    ids = bench.add(count)
    bench.claim(count)
    bench.client.delete(*(bench.handle.keys.lock(job_id) for job_id in ids))
    return ids


def check(bench: WorkBench, **settings: Any) -> claims.Rescued:
    """A stalled check that no earlier check of the interval prevents."""
    bench.client.delete(bench.key("stalled_check"), bench.key("rescue_check"))
    return rescue(bench.handle, **settings)


@pytest.mark.parametrize("bench", ["bull-1"], indirect=True)
def test_a_job_that_no_worker_has_started_has_not_stalled(bench: WorkBench) -> None:
    bench.add(1)
    bench.client.lmove(bench.key("wait"), bench.key("active"), "RIGHT", "LEFT")
    assert len(check(bench, max_stalled=0).stalled) == 1
    assert bench.counts() == {"wait": 1}


def stall(bench: WorkBench, claim: Claim, job_ids: list[str], *, since: int | None = None) -> None:
    """Returns running jobs of a claim, as their process ends, which was running at `since`; default: it started now."""
    now = bench.handle.connection.now_ms()
    verbs.stall(bench.handle, claim.token, job_ids, max_stalled=1, since=now + HOUR if since is None else since)


def test_jobs_whose_process_ends_wait_again_in_their_order_with_one_stall(bench: WorkBench) -> None:
    """Jobs of another worker stay with it, and those that are gone do not come back."""
    ids = bench.add(6)
    claim = bench.claim(5)
    bench.client.set(bench.handle.keys.lock(ids[3]), "another")
    bench.client.delete(bench.handle.keys.job(ids[4]))
    stall(bench, claim, ids[1:5])
    assert (bench.ids("wait"), sorted(bench.ids("active"))) == ([*ids[1:3], ids[5]], [ids[0], ids[3]])
    assert bench.locks(ids[:4]) == [True, False, False, True]
    found = [bench.queue.job(job_id) for job_id in ids]
    assert [job and job.stalled_counter for job in found] == [0, 1, 1, 0, None, 0]


def test_a_job_whose_process_ends_too_often_fails(bench: WorkBench) -> None:
    (job_id,) = bench.add()
    for _ in range(2):
        stall(bench, bench.claim(), [job_id])
    if bench.bullmq:
        # The worker that claims the job next fails it.
        (job,) = bench.claim().jobs
        assert job.deferred_failure == "job stalled more than allowable limit"
    else:
        assert bench.counts() == {"failed": 1}
        (failed,) = bench.queue.page("failed")
        assert failed.failed_reason == "job stalled more than allowable limit"


def test_the_ends_of_several_running_processes_count_one_stall(bench: WorkBench) -> None:
    (job_id,) = bench.add()
    running = bench.handle.connection.now_ms()
    for _ in range(3):
        stall(bench, bench.claim(), [job_id], since=running)
    (job,) = bench.queue.page("wait")
    assert (job.id, job.stalled_counter) == (job_id, 1)


@only_bullmq
def test_a_job_of_a_scheduler_never_fails_because_its_process_ends(bench: WorkBench) -> None:
    """Its failure would end the job scheduler."""
    (job_id,) = bench.add()
    bench.client.hset(bench.handle.keys.job(job_id), "rjk", "hourly")
    bench.client.zadd(bench.key("repeats"), {"hourly": 1})
    for _ in range(3):
        claim = bench.claim()
        assert [(one.id, one.deferred_failure) for one in claim.jobs] == [(job_id, None)]
        stall(bench, claim, [job_id])


def test_the_stalled_check_runs_once_per_interval_and_in_slices(bench: WorkBench) -> None:
    rescue(bench.handle)
    assert bench.client.keys(f"{bench.handle.keys.base}*") == [], "of a missing queue it makes no keys"
    ids = lose_worker(bench, 25)
    found = [check(bench, limit=4, check_ms=60_000)]
    assert rescue(bench.handle, check_ms=60_000).stalled == []
    found.append(check(bench, limit=4))
    assert sorted(i for rescued in found for i in rescued.stalled) == sorted(ids)
    assert bench.counts() == {"wait": 25}


def test_a_further_stalled_check_leaves_no_further_receipt(bench: WorkBench) -> None:
    receipts = f"{bench.handle.keys.receipt('')}*"
    lose_worker(bench, 2)
    check(bench, limit=1)
    before = set(bench.client.keys(receipts))
    check(bench, limit=1)
    rescue(bench.handle)
    assert set(bench.client.keys(receipts)) == before
    assert all(HOUR / 2 < bench.client.pttl(receipt) <= HOUR for receipt in before), "as long as a reply may be lost"


@not_bull_1
def test_each_minute_of_the_metrics_has_the_jobs_of_one(bench: WorkBench) -> None:
    settings = WorkSettings("slot", lock_ms=HOUR, max_metrics=10)
    for jobs in (2, 1, 3):
        bench.add(jobs)
        bench.work(completed(bench.claim(work_settings=settings)), work_settings=settings)
        # The minute is over.
        bench.client.hincrby(bench.key("metrics_completed"), "prevTS", -60_000)
    assert bench.client.lrange(bench.key("metrics_completed_data"), 0, -1) == [b"1", b"2"]
    assert bench.client.hget(bench.key("metrics_completed"), "count") == b"6"
