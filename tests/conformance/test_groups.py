"""Limits of groups of jobs, in every dialect: jobs over the limit are delayed, and start in their order.

Tests with a `bench` run twice: with each script sent once, and with each script sent again as if its reply had been
lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from spark_bull.core.model.jobs import NewJob
from spark_bull.core.model.limits import GroupLimits
from spark_bull.core.model.outcomes import Claim, Outcomes, Rested, Retried
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.work.claim import work
from spark_bull.core.queue.work.verbs import promote_due
from tests.conformance.groups import (
    ALL_GROUP_KEYS,
    FIVE_AT_ONCE,
    GROUP_KEYS,
    HOUR_MS,
    THREE_PER_HOUR,
    TWO_AT_ONCE,
    add,
    claim,
    claim_and_complete,
    due_times,
    end_windows,
    finish,
    ids_of,
    move_back,
    outcomes_of,
    settings,
)
from tests.support.node import NodePeer, Peer, each_peer_of
from tests.support.wait import wait_until
from tests.support.work_bench import DIALECTS, WorkBench, completed, not_bull_1, rescue_all

# concurrency


def test_no_more_jobs_of_a_group_run_than_its_limit_and_the_others_are_delayed_as_if_unclaimed(
    bench: WorkBench,
) -> None:
    ids = add(bench.queue, ["a"] * 5 + ["b"] * 2)
    assert ids_of(claim(bench)) == [ids[0], ids[1], ids[5], ids[6]]
    assert bench.counts() == {"active": 4, "delayed": 3}
    assert set(bench.ids("delayed")) == set(ids[2:5])
    assert bench.locks(ids[2:5]) == [False] * 3
    assert claim(bench).jobs == []
    assert [bench.field(ids[4], name) for name in ("processedOn", "ats")] == [None, None]
    if bench.bullmq:
        assert int(bench.field(ids[4], "delay") or 0) == HOUR_MS
        events = [fields[b"event"] for _, fields in bench.client.xrange(bench.key("events")) if b"jobId" in fields]
        assert events.count(b"delayed") == 3


@pytest.mark.parametrize("way", range(4), ids=["completed", "failed", "retried", "delayed"])
def test_a_job_that_ends_promotes_the_next_one_of_its_group_behind_the_next_jobs(bench: WorkBench, way: int) -> None:
    ids = add(bench.queue, ["a"] * 4)
    found = claim(bench)
    others = add(bench.queue, [None] * 150)
    bench.work(outcomes_of(found, ids[1])[way])
    assert ids[2] not in bench.ids("delayed")
    assert ids[3] in bench.ids("delayed")
    assert ids_of(claim(bench, 101)) == [*others[:100], ids[2]]
    assert bench.field(ids[2], "delay") in ("0", None)
    assert bench.client.zrange(bench.key("group_active"), 0, -1) == [ids[0].encode(), ids[2].encode()]


def test_jobs_of_a_group_start_in_the_order_in_which_they_were_added(bench: WorkBench) -> None:
    ids = add(bench.queue, ["a"] * 12)
    assert finish(bench, TWO_AT_ONCE) == ids
    assert bench.counts() == {"completed": 12}
    if bench.bullmq:
        # Each of the other jobs was delayed once, and promoted when it could start.
        events = [fields[b"event"] for _, fields in bench.client.xrange(bench.key("events"))]
        assert events.count(b"delayed") == 10


def test_a_new_job_does_not_overtake_a_delayed_one_of_its_group(bench: WorkBench) -> None:
    ids = add(bench.queue, ["a"] * 5)
    found = claim(bench)
    bench.client.delete(*(bench.handle.keys.lock(job.id) for job in found.jobs))
    ids += add(bench.queue, ["a"])
    started = ids_of(claim(bench))
    assert started == ids[2:4]
    assert set(bench.ids("delayed")) == set(ids[4:])


def test_promoted_jobs_have_their_places_before_they_start(bench: WorkBench) -> None:
    ids = add(bench.queue, ["a"] * 40)
    first = claim(bench, 10, FIVE_AT_ONCE)
    bench.work(completed(first))
    for started in range(1, 6):
        found = bench.claim(10, work_settings=settings(FIVE_AT_ONCE, at_once=1))
        assert ids_of(found) == [ids[4 + started]]
        assert bench.counts() == {"completed": 5, "active": started, "delayed": 30} | (
            {"wait": 5 - started} if started < 5 else {}
        )


RETURNED = ("returned", "unstarted", "retried")


def put_back(bench: WorkBench, found: Claim, job_id: str, way: str) -> None:
    if way == "retried":
        bench.work(Outcomes(found.token, retried=[Retried(job_id, "no", "[]", 0, False)]))
    elif way == "stalled":
        rescue_all(bench.handle, [job_id])
    else:
        bench.work(Outcomes(found.token, **{way: [job_id]}))


@pytest.mark.parametrize("way", [*RETURNED, "stalled"])
def test_a_job_that_waits_again_starts_before_the_delayed_jobs_of_its_group(bench: WorkBench, way: str) -> None:
    ids = add(bench.queue, ["a"] * 10)
    found = claim(bench)
    put_back(bench, found, ids[0], way)
    assert bench.counts() == {"active": 1, "wait": 1, "delayed": 8}
    assert bench.client.zrange(bench.key("group_active"), 0, -1) == [ids[1].encode()]
    assert ids_of(claim(bench)) == ids[:1]


@pytest.mark.parametrize("way", RETURNED)
def test_a_job_that_waits_again_behind_a_backlog_starts_before_the_delayed_jobs_of_its_group(
    bench: WorkBench, way: str
) -> None:
    ids = add(bench.queue, ["a"] * 10)
    found = claim(bench)
    others = add(bench.queue, ["b"] * 300)
    put_back(bench, found, ids[0], way)
    bench.work(outcomes_of(found, ids[1])[0])
    started = finish(bench, TWO_AT_ONCE, at_once=1)
    assert sorted(started) == sorted([ids[0], *ids[2:], *others])
    assert started.index(ids[0]) < started.index(ids[3])


# rate


def test_no_more_jobs_of_a_group_start_in_a_period_than_its_limit(bench: WorkBench) -> None:
    ids = add(bench.queue, ["a"] * 10 + ["b"])
    found = claim(bench, 20, THREE_PER_HOUR)
    assert ids_of(found) == [*ids[:3], ids[10]]
    bench.work(completed(found))
    assert bench.counts() == {"completed": 4, "delayed": 7}
    end = int(bench.client.zrange(bench.key("group_windows"), 0, 0, withscores=True)[0][1])
    assert found.now - HOUR_MS < end - HOUR_MS <= found.now
    assert due_times(bench, ids[3:10]) == [end] * 3 + [end + HOUR_MS] * 3 + [end + 2 * HOUR_MS]


def test_counters_of_periods_that_are_over_are_deleted(bench: WorkBench) -> None:
    add(bench.queue, [f"tenant-{n}" for n in range(20)])
    bench.work(completed(claim(bench, 50, THREE_PER_HOUR)))
    assert bench.client.hlen(bench.key("group_started")) == 20
    end_windows(bench)
    claim(bench, 1, THREE_PER_HOUR)
    assert bench.client.exists(*(bench.key(name) for name in GROUP_KEYS)) == 0


def test_a_group_that_has_used_up_its_period_gets_no_job_promoted_until_it_is_over(bench: WorkBench) -> None:
    ids = add(bench.queue, ["a"] * 8)
    both = GroupLimits("tenant", max=3, duration_ms=HOUR_MS, concurrency=2)
    assert [ids_of(claim_and_complete(bench, 10, both)) for _ in range(2)] == [ids[:2], ids[2:3]]
    assert bench.counts() == {"completed": 3, "delayed": 5}
    end = int(bench.client.zrange(bench.key("group_windows"), 0, 0, withscores=True)[0][1])
    assert claim(bench, 10, both).next_due == end
    # None of the jobs is due.
    move_back(bench, "group_windows", 2 * HOUR_MS)
    assert ids_of(claim(bench, 10, both)) == ids[3:5]
    assert bench.counts() == {"completed": 3, "active": 2, "delayed": 3}


@pytest.mark.parametrize("others_promote", [True, False])
def test_the_end_of_a_period_promotes_no_more_jobs_than_may_start(bench: WorkBench, others_promote: bool) -> None:
    ids = add(bench.queue, ["a"] * 30)
    bench.work(completed(claim(bench, 20, THREE_PER_HOUR)))
    for first in (3, 6, 9):
        end_windows(bench, 1)
        if others_promote:
            assert promote_due(bench.handle).moved == 3
        found = bench.claim(10, work_settings=settings(THREE_PER_HOUR, at_once=1))
        assert ids_of(found) == [ids[first]]
        assert bench.counts() == {"completed": first, "active": 1, "wait": 2, "delayed": 27 - first}
        bench.work(completed(found))
        bench.work(completed(claim(bench, 20, THREE_PER_HOUR)))


def test_each_of_many_groups_whose_periods_are_over_starts_jobs(bench: WorkBench) -> None:
    tenants = [f"tenant-{n}" for n in range(1100)]
    one = GroupLimits("tenant", max=1, duration_ms=HOUR_MS)
    add(bench.queue, tenants)
    bench.work(completed(claim(bench, 2000, one)))
    move_back(bench, "group_windows", 2 * HOUR_MS)
    ids = add(bench.queue, tenants)
    assert ids_of(claim(bench, 2000, one)) == ids
    assert set(bench.client.hvals(bench.key("group_started"))) == {b"1"}


def test_a_claim_promotes_a_limited_number_of_jobs_when_many_periods_end_at_once(bench: WorkBench) -> None:
    tenants = [f"tenant-{n}" for n in range(60)]
    some = GroupLimits("tenant", max=20, duration_ms=HOUR_MS)
    total, at_first = len(add(bench.queue, tenants * 30)), len(tenants) * 20
    assert len(finish(bench, some, limit=500)) == at_first
    assert bench.queue.counts()["delayed"] == total - at_first
    move_back(bench, "group_windows", 2 * HOUR_MS)
    assert len(claim_and_complete(bench, 1, some).jobs) == 1
    assert bench.queue.counts()["delayed"] >= total - at_first - 200
    assert len(finish(bench, some, limit=500)) == total - at_first - 1


def test_jobs_that_wait_for_running_ones_are_due_a_few_at_a_time(bench: WorkBench) -> None:
    ids = add(bench.queue, ["a"] * 32)
    now = claim(bench, 10).now
    lateness = [round((due - now) / HOUR_MS) for due in due_times(bench, ids[2:])]
    assert lateness == [1] * 10 + [2] * 10 + [3] * 10


# which group


def test_a_group_is_a_text_or_number_in_a_field_or_in_the_options_of_a_job(bench: WorkBench) -> None:
    ids = add(bench.queue, [None] * 5)
    texts = ["null", "[1]", '"text"', '{"tenant": null}', '{"tenant": {}}', '{"tenant": [1]}']
    ids += bench.queue.add_many([NewJob(json.loads(text)) for text in texts]).ids
    assert ids_of(claim(bench, 20)) == ids
    assert bench.client.exists(bench.key("group_active")) == 0
    payloads = [{"to": {"tenant": one}} for one in (7, 7, 7, "7", 8, "é\n", "é\n", "é\n")]
    ids = bench.queue.add_many([NewJob(payload) for payload in payloads]).ids
    nested = GroupLimits("to.tenant", concurrency=2)
    assert ids_of(claim(bench, 20, nested)) == [ids[0], ids[1], ids[4], ids[5], ids[6]]
    ids = bench.queue.add_many(
        [NewJob({"tenant": f"t{n}"}, opts={"group": {"id": "same"}}) for n in range(3)]
        + [NewJob({"tenant": "t"}, opts={"group": "unrelated"}) for n in range(3)]
    ).ids
    assert ids_of(claim(bench)) == [ids[0], ids[1], ids[3], ids[4]]


# fairness


def test_a_small_tenant_does_not_wait_behind_others_whose_limits_fill_all_places(bench: WorkBench) -> None:
    add(bench.queue, ["one", "two"] * 200)
    running = [found for found in (claim(bench, 1) for _ in range(4)) if found.jobs]
    assert len(running) == 4
    for _ in range(20):
        small = add(bench.queue, ["small"])
        # With four places, three jobs end in less time than one takes.
        for _ in range(3):
            found = bench.work(completed(running.pop(0)), 1, work_settings=settings())
            while not found.jobs:
                assert found.more
                found = bench.claim(1, work_settings=settings())
            running.append(found)
            if ids_of(found) == small:
                break
        assert ids_of(found) == small


def test_a_tenant_whose_job_ends_keeps_its_share_while_others_have_a_backlog(bench: WorkBench) -> None:
    tenants = ["one"] * 50 + ["two"] * 500
    tenant_of = dict(zip(add(bench.queue, tenants), tenants, strict=True))
    started = [tenant_of[job_id] for job_id in finish(bench, TWO_AT_ONCE, limit=4)]
    assert len(started) == 550
    assert started[:100].count("one") >= 45


def test_one_call_delays_a_limited_number_of_jobs_and_reports_that_there_is_more(bench: WorkBench) -> None:
    ids = add(bench.queue, ["a"] * 1200)
    other = add(bench.queue, ["b"])
    assert ids_of(bench.claim(2, work_settings=settings())) == ids[:2]
    assert bench.counts()["delayed"] == 150
    found = bench.claim(1, work_settings=settings())
    assert (found.jobs, found.more, bench.counts()["delayed"]) == ([], True, 300)
    assert ids_of(claim(bench, 1)) == other
    assert bench.counts() == {"active": 3, "delayed": 1198}


# losses


def test_delayed_jobs_that_were_removed_or_promoted_by_others_hold_up_nobody(bench: WorkBench) -> None:
    ids = add(bench.queue, ["a"] * 7)
    found = claim(bench)
    bench.queue.remove(ids[2])
    bench.client.zincrby(bench.key("delayed"), 4096, ids[3])
    bench.work(completed(found))
    assert sorted(ids_of(claim(bench))) == sorted(ids[4:6])
    assert set(bench.ids("delayed")) == {ids[3], ids[6]}


@pytest.mark.parametrize("way", ["removed", "completed elsewhere"])
def test_a_group_whose_first_delayed_jobs_are_gone_starts_the_others_at_once(bench: WorkBench, way: str) -> None:
    ids = add(bench.queue, ["a"] * 800)
    found = claim(bench)
    assert claim(bench).jobs == []
    gone = ids[2:700]
    bench.client.zrem(bench.key("delayed"), *gone)
    if way == "removed":
        bench.client.delete(*map(bench.handle.keys.job, gone))
    bench.work(completed(found))
    assert ids_of(claim(bench)) == ids[700:702]
    assert bench.client.zcard(bench.key("group_delayed")) == bench.counts()["delayed"] == 98


def test_promoted_jobs_that_others_have_started_or_removed_free_their_places(bench: WorkBench) -> None:
    ids = add(bench.queue, ["a"] * 8)
    found = claim(bench)
    bench.work(completed(found))
    assert bench.counts() == {"completed": 2, "wait": 2, "delayed": 4}
    bench.queue.remove(ids[2])
    assert ids_of(bench.claim(1)) == [ids[3]]
    add(bench.queue, ["a"])
    assert ids_of(claim(bench)) == ids[4:6]


def test_a_job_that_was_promoted_by_hand_takes_a_place_of_its_group(bench: WorkBench) -> None:
    ids = add(bench.queue, ["a"] * 8)
    found = claim(bench)
    bench.queue.promote(ids[2])
    bench.work(completed(found))
    assert bench.counts() == {"completed": 2, "wait": 2, "delayed": 4}
    assert sorted(ids_of(claim(bench))) == sorted(ids[2:4])


# other features of the queue


@not_bull_1
def test_priorities_are_kept(bench: WorkBench) -> None:
    add(bench.queue, ["a"] * 2)
    found = claim(bench)
    low = add(bench.queue, ["a"], priority=9)
    high = add(bench.queue, ["a"], priority=2)
    assert claim(bench).jobs == []
    assert set(bench.ids("delayed")) == {*low, *high}
    bench.work(completed(found))
    other = add(bench.queue, ["b"], priority=5)
    assert ids_of(claim(bench)) == [*high, *other, *low]


@pytest.mark.parametrize("bench", ["bull"], indirect=True)
def test_the_highest_numbers_of_priorities_are_kept(bench: WorkBench) -> None:
    first = add(bench.queue, ["a"] * 2, priority=1)
    found = claim(bench)
    lowest = add(bench.queue, ["a"], priority=3 * 10**15)
    low = add(bench.queue, ["a"], priority=10**8)
    high = add(bench.queue, ["a"], priority=10**8 - 1)
    none = add(bench.queue, ["a"])
    assert claim(bench).jobs == []
    assert bench.client.zcard(bench.key("group_delayed")) == 4
    bench.work(completed(found))
    assert first + finish(bench, TWO_AT_ONCE) == [*first, *high, *low, *lowest, *none]


def test_a_promoted_job_of_a_paused_queue_waits_until_it_is_resumed(bench: WorkBench) -> None:
    ids = add(bench.queue, ["a"] * 3)
    found = claim(bench)
    bench.queue.pause()
    bench.work(completed(found))
    assert claim(bench).jobs == []
    assert "delayed" not in bench.counts()
    bench.queue.resume()
    assert ids_of(claim(bench)) == ids[2:]


def test_nothing_is_delayed_while_the_queue_is_rate_limited(bench: WorkBench) -> None:
    add(bench.queue, ["a"] * 5)
    bench.client.set(bench.key("rate_limited"), "1", px=HOUR_MS)
    found = claim(bench)
    assert (found.jobs, found.limited_ms > 0, bench.counts()) == ([], True, {"wait": 5})


@pytest.mark.parametrize("bench", DIALECTS[:2], indirect=True)
def test_a_job_that_a_blocking_command_has_moved_is_delayed_if_its_group_is_full(bench: WorkBench) -> None:
    ids = add(bench.queue, ["a"] * 3)
    claim(bench, 2)
    bench.client.lmove(bench.key("wait"), bench.key("active"), "RIGHT", "LEFT")
    assert bench.claim(5, work_settings=settings(), held=ids[2]).jobs == []
    assert bench.counts() == {"active": 2, "delayed": 1}


def test_a_claim_without_limits_of_groups_writes_no_counters(bench: WorkBench) -> None:
    add(bench.queue, ["a"] * 5)
    found = bench.claim(10)
    assert len(found.jobs) == 5
    bench.work(completed(found))
    assert bench.client.exists(*(bench.key(name) for name in ALL_GROUP_KEYS)) == 0


def test_obliterate_removes_the_counters(bench: WorkBench) -> None:
    add(bench.queue, ["a"] * 5)
    both = GroupLimits("tenant", max=3, duration_ms=HOUR_MS, concurrency=2)
    found = claim(bench, 10, both)
    bench.work(Outcomes(found.token, rested=[Rested(found.jobs[0].id, HOUR_MS)]))
    claim(bench, 10, both)
    assert bench.client.exists(*(bench.key(name) for name in ALL_GROUP_KEYS)) == 7
    bench.queue.obliterate(force=True)
    assert bench.client.exists(*(bench.key(name) for name in ALL_GROUP_KEYS)) == 0


# workers


@each_peer_of("bull-1.1.3", "bull", "bullmq")
def test_a_node_worker_promotes_and_processes_what_was_delayed(
    peer: Peer, node: Callable[..., NodePeer], redis_url: str, prefix: str
) -> None:
    peer_of = node(peer.alias, prefix=prefix)
    with BullQueue("q", url=redis_url, prefix=prefix, protocol=peer.dialect) as queue:
        add(queue, ["a"] * 6)
        ours = settings(GroupLimits("tenant", max=2, duration_ms=500))
        found = work(queue.handle, ours, None, 8)
        assert queue.counts()["delayed"] == 4
        peer_of.call("process", queue="q", concurrency=4)
        work(queue.handle, ours, completed(found), 0)
        wait_until(lambda: queue.counts()["completed"] == 6, "all jobs to complete")
