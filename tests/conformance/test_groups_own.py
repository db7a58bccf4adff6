"""Groups of jobs with limits of their own, pauses and rests, in every dialect.

Each test runs twice: with each script sent once, and with each script sent again as if its reply had been lost.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from spark_bull.core.errors import OptionError, RateLimitError
from spark_bull.core.model.jobs import NewJob
from spark_bull.core.model.limits import Group, GroupLimits
from spark_bull.core.model.outcomes import Claim, Outcomes, Rested
from spark_bull.core.queue.manage.limits import GROUPS
from spark_bull.core.queue.monitor.find import exists
from spark_bull.core.queue.work.verbs import promote_due
from spark_bull.run.job.running_job import RunningJob
from tests.conformance.groups import (
    ALL_GROUP_KEYS,
    HOUR_MS,
    TWO_AT_ONCE,
    add,
    claim,
    claim_and_complete,
    end_rests,
    end_windows,
    finish,
    ids_of,
    outcomes_of,
    settings,
)
from tests.support.wait import wait_until
from tests.support.work_bench import WorkBench, completed, only_bullmq, rescue_all
from tests.support.worker import OurWorker

UNLIMITED = GroupLimits("tenant")


def with_groups(bench: WorkBench, limits: GroupLimits = UNLIMITED) -> WorkBench:
    """The queue, after a worker with groups has claimed from it."""
    claim(bench, 1, limits)
    return bench


def groups_of(bench: WorkBench) -> dict[str, Group]:
    return {found.group: found for found in bench.queue.groups()}


# limits


def test_a_group_has_its_own_limit_and_the_others_have_that_of_the_worker(bench: WorkBench) -> None:
    with_groups(bench).queue.set_group_limit("big", concurrency=4)
    bench.queue.set_group_limit("small", concurrency=1)
    ids = add(bench.queue, ["big"] * 6 + ["small"] * 3 + ["other"] * 3)
    assert ids_of(claim(bench, 20)) == [*ids[:4], ids[6], *ids[9:11]]


def test_an_own_rate_limit_counts_in_its_own_period(bench: WorkBench) -> None:
    with_groups(bench).queue.set_group_limit("a", max=3, duration_ms=HOUR_MS)
    ids = add(bench.queue, ["a"] * 5 + ["b"] * 5)
    found = claim_and_complete(bench, 20, TWO_AT_ONCE)
    assert ids_of(found) == [*ids[:2], *ids[5:7]]
    assert sorted(finish(bench, TWO_AT_ONCE), key=ids.index) == [ids[2], *ids[7:]]
    end_windows(bench)
    assert finish(bench, TWO_AT_ONCE) == ids[3:5]


@pytest.mark.parametrize("change", ["raised", "removed"])
def test_jobs_start_when_the_limit_of_their_group_is_raised_or_removed(bench: WorkBench, change: str) -> None:
    with_groups(bench).queue.set_group_limit("a", concurrency=1)
    ids = add(bench.queue, ["a"] * 4)
    assert ids_of(claim(bench)) == ids[:1]
    if change == "raised":
        bench.queue.set_group_limit("a", concurrency=2)
    else:
        bench.queue.remove_group_limit("a")
    assert ids_of(claim(bench)) == ids[1:2]


def test_running_jobs_count_for_a_limit_that_their_group_gets_later(bench: WorkBench) -> None:
    ids = add(bench.queue, ["a"] * 2)
    assert ids_of(claim(bench, 2, UNLIMITED)) == ids
    bench.queue.set_group_limit("a", concurrency=2)
    add(bench.queue, ["a"])
    assert claim(bench, 2, UNLIMITED).jobs == []


@pytest.mark.parametrize("is_claimed", [False, True])
def test_limits_that_are_not_named_stay_and_the_key_goes_with_the_last_one(bench: WorkBench, is_claimed: bool) -> None:
    queue = with_groups(bench).queue if is_claimed else bench.queue
    queue.set_group_limit("a", concurrency=1)
    queue.set_group_limit("a", max=5, duration_ms=1_000)
    assert list(queue.groups()) == [Group("q", "a", 0, 0, max=5, duration_ms=1_000, concurrency=1)]
    queue.pause_group("a")
    queue.remove_group_limit("a", rate=False)
    queue.resume_group("a")
    assert list(queue.groups()) == [Group("q", "a", 0, 0, max=5, duration_ms=1_000)]
    queue.remove_group_limit("a")
    assert list(queue.groups()) == []
    left = [name for name in ALL_GROUP_KEYS if bench.client.exists(bench.key(name))]
    assert left == (["group_settings"] if is_claimed else [])


@only_bullmq
def test_a_wrong_limit_changes_nothing(bench: WorkBench) -> None:
    for group, given, why in (
        ("a", {"max": 1}, "expected `max` and `duration_ms` together, got no `duration_ms`"),
        (7, {"concurrency": 1}, "expected `group` to be the name of a group, a text, got: 7"),
    ):
        with pytest.raises(OptionError, match=why):
            with_groups(bench).queue.set_group_limit(group, **given)
    assert bench.client.exists(bench.key("group_own")) == 0


def test_limits_can_be_set_before_the_first_job_and_the_first_claim(bench: WorkBench) -> None:
    bench.queue.set_group_limit("a", concurrency=1)
    bench.queue.pause_group("b")
    assert exists(bench.handle.connection, bench.handle.keys)
    assert sorted(bench.queue.groups(), key=lambda one: one.group) == [
        Group("q", "a", 0, 0, concurrency=1),
        Group("q", "b", 0, 0, is_paused=True),
    ]
    ids = add(bench.queue, ["a", "a", "b", "c"])
    assert ids_of(claim(bench)) == [ids[0], ids[3]]
    bench.queue.resume_group("b")
    assert ids_of(claim(bench)) == [ids[2]]


# pauses


def test_jobs_of_a_paused_group_wait_until_it_is_resumed(bench: WorkBench) -> None:
    ids = add(bench.queue, ["a", "b"] * 3)
    found = claim(bench, 1)
    bench.queue.pause_group("a")
    assert ids_of(claim(bench)) == [ids[1], ids[3]]
    bench.work(completed(found))
    assert ids_of(claim(bench)) == []
    bench.queue.resume_group("a")
    assert ids_of(claim(bench)) == ids[2:5:2]


def test_each_job_of_a_paused_group_is_moved_once_until_it_is_resumed(bench: WorkBench) -> None:
    with_groups(bench).queue.pause_group("a")
    ids = add(bench.queue, ["a"] * 1_000)
    other = add(bench.queue, ["b"])
    assert ids_of(claim_and_complete(bench, 1, UNLIMITED)) == other
    assert bench.counts() == {"completed": 1, "delayed": 1_000}
    # Neither the end of all windows and rests nor the promoter lets them wait again.
    end_windows(bench)
    end_rests(bench)
    assert promote_due(bench.handle).moved == 0
    next_one = add(bench.queue, ["b"])
    found = bench.claim(1, work_settings=settings(UNLIMITED))
    assert (ids_of(found), bench.counts()["delayed"]) == (next_one, 1_000)
    bench.queue.resume_group("a")
    assert sorted(finish(bench, UNLIMITED, limit=50), key=ids.index) == ids


def test_jobs_of_a_resumed_group_start_although_others_have_taken_the_promoted_ones(bench: WorkBench) -> None:
    with_groups(bench).queue.pause_group("a")
    ids = add(bench.queue, ["a"] * 4)
    assert claim(bench).jobs == []
    bench.queue.resume_group("a")
    # As a worker of Node does, which knows no groups.
    taken = bench.claim(10)
    assert ids_of(taken) == ids[:2]
    bench.work(completed(taken))
    assert claim(bench).jobs == []
    end_rests(bench)
    assert ids_of(claim(bench)) == ids[2:]


# rests


def rest(bench: WorkBench, found: Claim, job_id: str, limits: GroupLimits = TWO_AT_ONCE) -> Claim:
    outcomes = Outcomes(found.token, rested=[Rested(job_id, HOUR_MS)])
    return bench.work(outcomes, 10, work_settings=settings(limits))


def test_a_group_rests_without_losing_an_attempt_and_the_others_go_on(bench: WorkBench) -> None:
    ids = add(bench.queue, ["a"] * 3 + ["b"] * 3, attempts=1)
    found = claim(bench, 10)
    assert ids_of(found) == [*ids[:2], *ids[3:5]]
    # The longer of two rests counts.
    rested = Outcomes(found.token, rested=[Rested(ids[0], HOUR_MS), Rested(ids[1], 1)])
    assert bench.work(rested, 10, work_settings=settings(TWO_AT_ONCE)).jobs == []
    assert bench.counts() == {"active": 2, "delayed": 4}
    bench.work(outcomes_of(found, ids[3])[0])
    assert ids_of(claim(bench)) == ids[5:]
    until = groups_of(bench)["a"].rests_until
    assert found.now + HOUR_MS <= until <= bench.client.time()[0] * 1_000 + HOUR_MS + 1_000
    end_rests(bench)
    assert sorted((job.id, job.attempts_made) for job in claim(bench).jobs) == [(ids[0], 0), (ids[1], 0)]
    assert groups_of(bench)["a"].rests_until is None


def test_a_job_in_no_group_is_delayed_by_itself(bench: WorkBench) -> None:
    ids = add(bench.queue, [None] * 2)
    found = claim(bench, 1)
    assert ids_of(rest(bench, found, ids[0])) == ids[1:]
    assert bench.ids("delayed") == ids[:1]


def test_a_job_whose_lock_was_lost_lets_no_group_rest(bench: WorkBench) -> None:
    ids = add(bench.queue, ["a"] * 3)
    found = claim(bench, 1)
    bench.client.delete(bench.handle.keys.lock(ids[0]))
    answer = rest(bench, found, ids[0])
    assert [lost.id for lost in answer.lost] == ids[:1]
    assert groups_of(bench)["a"].rests_until is None


def test_a_worker_goes_on_with_a_group_after_its_periods_its_rest_and_its_pause(bench: WorkBench) -> None:
    """Without a promoter, and long before the jobs that were delayed are due."""
    busy = {"a"}

    def process(job: RunningJob) -> None:
        if job.data["tenant"] in busy:
            busy.clear()
            raise RateLimitError(100, group=True)

    queue = with_groups(bench).queue
    queue.pause_group("b")
    add(queue, ["a", "b"] * 4)
    limits = GroupLimits("tenant", max=3, duration_ms=300, concurrency=2)
    with OurWorker(queue.handle, process, concurrency=2, lock_ms=HOUR_MS, group=limits):
        wait_until(lambda: bench.counts() == {"completed": 4, "delayed": 4}, "the jobs of the group that has rested")
        queue.resume_group("b")
        wait_until(lambda: bench.counts() == {"completed": 8}, "the jobs of the group that is resumed")


# counts


def test_groups_are_counted(bench: WorkBench) -> None:
    ids = add(bench.queue, ["a"] * 5 + ["b"] + [None] * 2)
    found = claim(bench, 20)
    bench.queue.set_group_limit("a", max=7, duration_ms=HOUR_MS)
    bench.queue.pause_group("c")
    assert sorted(bench.queue.groups(), key=lambda group: group.group) == [
        Group("q", "a", 3, 2, max=7, duration_ms=HOUR_MS),
        Group("q", "b", 0, 1),
        Group("q", "c", 0, 0, is_paused=True),
    ]
    bench.work(outcomes_of(found, ids[0])[0])
    # A promoted job waits, too.
    assert groups_of(bench)["a"] == Group("q", "a", 3, 1, max=7, duration_ms=HOUR_MS)


def test_groups_are_read_in_parts(bench: WorkBench) -> None:
    names = [f"tenant-{n}" for n in range(2 * GROUPS + 50)]
    add(bench.queue, names)
    assert len(claim(bench, 1_000).jobs) == len(names)
    for name in names[::3]:
        bench.queue.set_group_limit(name, concurrency=3)
    found = list(bench.queue.groups())
    assert sorted(group.group for group in found) == sorted(names)
    assert all((group.active, group.concurrency) in ((1, None), (1, 3)) for group in found)


def test_names_of_groups_are_any_texts_and_numbers(bench: WorkBench) -> None:
    names = ["", "é\n", "a b", "7", "\0", "x" * 1_000]
    bench.queue.add_many([NewJob({"tenant": name}) for name in [*names[:3], 7, *names[4:]]])
    claim(bench, 20)
    assert sorted(group.group for group in bench.queue.groups()) == sorted(names)
    for name in names:
        bench.queue.pause_group(name)
    assert {group.group for group in bench.queue.groups() if group.is_paused} == set(names)


# any mix


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 4))])
def test_in_any_mix_of_claims_outcomes_losses_pauses_rests_and_limits_these_hold_and_all_jobs_end(
    bench: WorkBench, seed: int
) -> None:
    draw, queue = random.Random(seed), with_groups(bench, TWO_AT_ONCE).queue
    tenants = [draw.choice(["a", "a", "a", "b", "c", None]) for _ in range(60)]
    ids = add(queue, tenants)
    tenant_of = dict(zip(ids, tenants, strict=True))
    held: dict[str, Claim] = {}
    limits, most, started = dict.fromkeys("abc", 2), dict[str, int](), Counter[str]()
    paused, resting = set[str](), set[str]()

    def take(count: int) -> None:
        found = claim(bench, count)
        held.update((job.id, found) for job in found.jobs)
        fresh = Counter(tenant for job in found.jobs if (tenant := tenant_of[job.id]))
        running = Counter(tenant_of[job_id] for job_id in held)
        assert not fresh.keys() & (paused | resting)
        for tenant, jobs in fresh.items():
            assert running[tenant] <= limits[tenant]
            if tenant in most:
                started[tenant] += jobs
                assert started[tenant] <= most[tenant]

    def end() -> None:
        job_id = draw.choice(list(held))
        found, tenant, what = held.pop(job_id), tenant_of[job_id], draw.random()
        if what < 0.2:
            bench.client.delete(bench.handle.keys.lock(job_id))
        elif what < 0.4:
            bench.work(Outcomes(found.token, **{draw.choice(["returned", "unstarted"]): [job_id]}))
        elif what < 0.5:
            bench.work(Outcomes(found.token, rested=[Rested(job_id, HOUR_MS)]))
            resting.update([tenant] if tenant else [])
        else:
            bench.work(outcomes_of(found, job_id)[0])

    def change() -> None:
        tenant, what = draw.choice("abc"), draw.randrange(7)
        if what == 0:
            queue.pause_group(tenant)
            paused.add(tenant)
        elif what == 1:
            queue.resume_group(tenant)
            paused.discard(tenant)
        elif what == 2:
            limits[tenant] = draw.randint(1, 4)
            queue.set_group_limit(tenant, concurrency=limits[tenant])
        elif what == 3:
            queue.remove_group_limit(tenant, rate=False)
            limits[tenant] = 2
        elif what == 4:
            most[tenant] = draw.randint(1, 5)
            queue.set_group_limit(tenant, max=most[tenant], duration_ms=HOUR_MS)
        elif what == 5:
            queue.remove_group_limit(tenant, concurrency=False)
            most.pop(tenant, None)
        else:
            end_rests(bench)
            end_windows(bench)
            resting.clear()
            started.clear()

    for _ in range(150):
        what = draw.random()
        if what < 0.4 or not held:
            take(draw.choice([1, 3, 10]))
        elif what < 0.7:
            end()
        else:
            change()
    for tenant in "abc":
        queue.resume_group(tenant)
        queue.remove_group_limit(tenant)
    for found_id, found in held.items():
        bench.work(outcomes_of(found, found_id)[0])
    for _ in range(200):
        found = claim_and_complete(bench, 10, TWO_AT_ONCE)
        if not found.jobs:
            rescue_all(bench.handle, max_stalled=100)
            end_windows(bench)
            end_rests(bench)
            promote_due(bench.handle)
        if bench.counts() == {"completed": 60}:
            break
    assert bench.counts() == {"completed": 60}
    assert bench.client.exists(bench.key("group_active"), bench.key("group_delayed")) == 0
    assert list(queue.groups()) == []
