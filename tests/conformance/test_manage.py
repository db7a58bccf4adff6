"""Pause, resume, retry, promote, remove, clean, drain and obliterate in every dialect.

Every script is sent again after its reply, as if the reply had been lost. The second reply must equal the first one,
and the second call must have no effect.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from redis import Redis

from spark_bull.core.errors import DialectError, JobLocked, JobMissing, OptionError, QueueBusy, WrongState
from spark_bull.core.model.jobs import NewJob
from spark_bull.core.model.queues import QueueLimits
from spark_bull.core.model.read_jobs import Change, FlowJob
from spark_bull.core.queue import managing
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.dispatch.roll_forward import recover
from spark_bull.core.queue.manage import manage
from tests.support.jobs import HOUR
from tests.support.traffic import published, send_scripts_twice
from tests.support.work_bench import FLAVOURS, Filled
from tests.support.writes import register_all

LONG_AGO = 1_600_000_000_000


each_flavour = pytest.mark.parametrize("flavour", FLAVOURS, indirect=True)
each_dialect = pytest.mark.parametrize("flavour", ["bull-1", "bull", "bullmq-6"], indirect=True)
only_bull = pytest.mark.parametrize("flavour", ["bull"], indirect=True)


@dataclass
class Bench(Filled):
    """A queue of a flavour, whose jobs a test puts into any state."""

    flavour: str = "bullmq-6"
    made: int = 0

    @property
    def paused_list(self) -> str:
        """Where the waiting jobs of a paused queue are."""
        return "wait" if self.flavour == "bullmq-6" else "paused"

    def fill(self, state: str, count: int = 1, at: int = LONG_AGO) -> list[str]:
        """Creates jobs in a state; returns their ids. `at`: see `put`."""
        ids = [f"j{self.made + n:04}" for n in range(count)]
        self.made += count
        if ids:
            self.put(state, ids, at)
        return ids

    def keys_of(self, job_id: str) -> set[str]:
        """All keys of a job, and the states that contain its id."""
        left = {name for name in self.public() if name == job_id or name.startswith(f"{job_id}:")}
        return left | {state for state in self.states if job_id in self.ids(state)}

    def markers(self) -> list[tuple[str, float]]:
        return self.public().get("marker", [])


Make = Callable[..., Bench]


@pytest.fixture
def flavour(request: pytest.FixtureRequest) -> str:
    return getattr(request, "param", "bullmq-6")


@pytest.fixture
def make(
    flavour: str, client: Redis, open_queue: Callable[..., BullQueue], prefix: str, monkeypatch: pytest.MonkeyPatch
) -> Make:
    send_scripts_twice(monkeypatch, alike=True)

    def open_bench(name: str = "q", chunk_size: int = 3) -> Bench:
        # Bull 1 publishes outside the prefix, so the name of the queue must be unique.
        queue = open_queue(f"{name}-{prefix}", chunk_size=chunk_size, **FLAVOURS[flavour])
        return Bench(queue, client, flavour=flavour)

    return open_bench


@pytest.fixture
def bench(make: Make) -> Bench:
    """A queue whose operations handle three jobs per script."""
    return make()


# pause and resume


@each_flavour
def test_a_drained_queue_stays_paused(bench: Bench) -> None:
    """An intended difference to Bull 1 to 3, which resume it."""
    bench.add(5)
    bench.queue.pause()
    assert bench.queue.drain() == 5
    assert bench.queue.is_paused()


@each_flavour
def test_pause_and_resume_overwrite_no_list(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(managing, "MOVE_SIZE", 3)
    for waiting, paused in ((0, 9), (9, 0), (4, 20), (20, 4), (10, 10), (0, 0)):
        older, newer = bench.fill("paused", paused), bench.fill("wait", waiting)
        bench.queue.pause()
        if bench.paused_list == "paused":
            assert bench.ids("paused") == older + newer
            assert bench.ids("wait") == []
        bench.queue.resume()
        assert bench.ids("wait") == older + newer
        assert bench.ids("paused") == []
        bench.queue.obliterate()


@each_dialect
def test_a_pause_is_read_where_the_dialect_stores_it(bench: Bench) -> None:
    seen = []
    for pause in (("SET", bench.key("meta-paused"), 1), ("HSET", bench.key("meta"), "paused", 1)):
        bench.client.execute_command(*pause)
        seen.append(bench.queue.is_paused())
        bench.client.delete(bench.key("meta-paused"), bench.key("meta"))
    assert seen == [not bench.bullmq, bench.queue.protocol != "bull-1"]


# limits


def test_limits_of_the_queue_are_read_as_they_were_set(bench: Bench) -> None:
    assert bench.queue.limits() == QueueLimits(None, None, None)
    bench.queue.set_limits(concurrency=3)
    bench.queue.set_limits(max=10, duration_ms=1_000)
    assert bench.queue.limits() == QueueLimits(3, 10, 1_000)
    bench.queue.remove_limits(rate=False)
    assert bench.queue.limits() == QueueLimits(None, 10, 1_000)
    bench.add()
    bench.queue.rate_limit(HOUR)
    assert 0 < bench.queue.limits().limited_ms <= HOUR
    claim = bench.claim(1)
    assert (claim.jobs, claim.limited_ms > 0) == ([], True)
    bench.queue.remove_rate_limit()
    bench.queue.remove_limits()
    assert bench.queue.limits() == QueueLimits(None, None, None)
    assert len(bench.claim(1).jobs) == 1


def test_changed_limits_wake_workers_if_jobs_may_start(bench: Bench) -> None:
    bench.fill("active", 2)
    bench.queue.set_limits(concurrency=2)
    assert bench.markers() == []
    bench.add(3)
    bench.queue.set_limits(max=5, duration_ms=HOUR)
    assert bench.markers() == []
    bench.queue.set_limits(concurrency=3)
    assert bench.markers() == [("0", 0)]
    bench.queue.pause()
    bench.queue.remove_limits()
    assert bench.markers() == []


def test_wrong_limits_are_refused(bench: Bench) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "expected `concurrency`, or `max` and `duration_ms`, got none"),
        ({"max": 1}, "expected `max` and `duration_ms` together, got no `duration_ms`"),
        ({"duration_ms": 1, "concurrency": 1}, "expected `max` and `duration_ms` together, got no `max`"),
        ({"concurrency": 0}, "expected `concurrency` to be an integer from 1 to"),
        ({"max": True, "duration_ms": 1}, "expected `max` to be an integer from 1 to"),
        ({"max": 1, "duration_ms": "1s"}, "expected `duration_ms` to be an integer from 1 to"),
    ]
    for arguments, message in wrong:
        with pytest.raises(OptionError, match=message):
            bench.queue.set_limits(**arguments)
    with pytest.raises(OptionError, match="expected `duration_ms` to be an integer from 1 to"):
        bench.queue.rate_limit(0)
    assert bench.queue.limits() == QueueLimits(None, None, None)


@only_bull
def test_a_queue_of_bull_has_no_limits_of_its_own(bench: Bench) -> None:
    for call in (
        bench.queue.limits,
        bench.queue.remove_limits,
        bench.queue.remove_rate_limit,
        lambda: bench.queue.set_limits(concurrency=1),
        lambda: bench.queue.rate_limit(1),
    ):
        with pytest.raises(DialectError, match=r"expected a queue of BullMQ: a queue of .* has no limits of its own"):
            call()


# retry and promote


@each_dialect
def test_jobs_that_cannot_be_retried_promoted_or_removed_are_refused(bench: Bench) -> None:
    (waiting,), (failed,), (active,) = bench.fill("wait"), bench.fill("failed"), bench.fill("active")
    bench.client.set(bench.handle.keys.lock(active), "worker")
    before = bench.public()
    with pytest.raises(JobMissing, match=r"expected a job nobody in queue .*, found none") as missing:
        bench.queue.retry("nobody")
    assert (missing.value.queue, missing.value.job_id) == (bench.queue.name, "nobody")
    with pytest.raises(WrongState, match=f"expected job {waiting} of queue .* to be failed, it is wait"):
        bench.queue.retry(waiting)
    with pytest.raises(DialectError, match="got: 'delayed'"):
        bench.queue.retry(failed, state="delayed")
    if not bench.bullmq:
        with pytest.raises(DialectError, match="got: 'completed'"):
            bench.queue.retry(failed, state="completed")
        bench.client.set(bench.handle.keys.lock(failed), "worker")
        with pytest.raises(JobLocked, match=f"job {failed} of queue .* is locked by a worker"):
            bench.queue.retry(failed)
        bench.client.delete(bench.handle.keys.lock(failed))
    for verb in (bench.queue.promote, bench.queue.remove):
        with pytest.raises(JobMissing):
            verb("nobody")
    with pytest.raises(WrongState, match="to be delayed, it is wait"):
        bench.queue.promote(waiting)
    with pytest.raises(JobLocked, match="until its lock expires"):
        bench.queue.remove(active)
    assert bench.public() == before


# remove


@each_dialect
def test_remove_and_promote_drop_ids_without_a_job(bench: Bench) -> None:
    for state in bench.states:
        lost, *others = bench.fill(state, 3)
        bench.client.delete(bench.handle.keys.job(lost))
        bench.queue.remove(lost)
        assert sorted(bench.ids(state)) == sorted(others)
        with pytest.raises(JobMissing):
            bench.queue.remove(lost)
    (lost,) = bench.fill("delayed")
    bench.client.delete(bench.handle.keys.job(lost))
    with pytest.raises(JobMissing):
        bench.queue.promote(lost)
    assert lost not in bench.ids("delayed")


@each_flavour
def test_an_id_that_equals_another_key_is_not_treated_as_a_job(bench: Bench) -> None:
    for state in bench.states:
        (job_id,) = bench.fill(state)
    bench.queue.add({})
    bench.queue.pause()
    bench.client.set(bench.handle.keys.lock(job_id), "theirs")
    bench.client.rpush(bench.handle.keys.logs(job_id), "line")
    bench.client.hset(bench.key("metrics_completed"), "count", 3)
    before = bench.public()
    assert {bench.paused_list, "id", "completed"} <= before.keys()
    names = before.keys() - {f"j{n:04}" for n in range(bench.made)} - {"1"}
    for name in names:
        for verb in (bench.queue.remove, bench.queue.promote, bench.queue.retry):
            with pytest.raises(JobMissing, match=f"expected a job {name} in queue"):
                verb(name)
    changes = [Change(name, action, data=1) for name in names for action in ("update", "remove", "retry")]
    assert {one.outcome for one in bench.queue.manage(changes)} == {"missing"}
    assert bench.public() == before


@only_bull
def test_all_keys_of_bull_about_a_job_are_removed_with_it(bench: Bench) -> None:
    verbs: list[Callable[[str], Any]] = [
        bench.queue.remove,
        lambda _: bench.queue.drain(),
        lambda _: bench.queue.clean(0, state="wait"),
    ]
    for verb in verbs:
        job_id, limited = "de:ad:lock", bench.key("limiter") + ":g:limited"
        bench.put("wait", [job_id], deid="once")
        bench.client.set(bench.handle.keys.deduplication("once"), job_id)
        bench.client.zadd(bench.key("priority"), {job_id: 3})
        bench.client.hset(bench.key("limiter_index"), job_id, limited)
        bench.client.sadd(limited, job_id)
        verb(job_id)
        assert bench.public() == {}


def adopt(client: Redis, parent: str, child: str) -> None:
    """Makes a job an unfinished child of another one, by their keys."""
    client.hset(child, "parentKey", parent)
    client.sadd(f"{parent}:dependencies", child)


@pytest.fixture(params=["one queue", "two queues"])
def family(request: pytest.FixtureRequest, make: Make) -> tuple[Bench, Bench]:
    """The queue of a job `p`, and the one of its waiting children `c` and `d`."""
    children = make("children")
    parents = make("parents") if request.param == "two queues" else children
    waiting = [FlowJob({}, job_id=name, queue=children.queue.name) for name in "cd"]
    parents.queue.add_flow(FlowJob({}, job_id="p", children=waiting))
    return parents, children


def test_a_locked_child_prevents_the_removal_of_its_parent_unless_it_is_removed_alone(
    family: tuple[Bench, Bench], client: Redis
) -> None:
    parents, children = family
    keys = children.handle.keys
    grandchild = children.queue.add({}, parent={"queue": children.queue.name, "id": "c"})
    client.set(keys.lock(grandchild), "worker")
    before = children.public()
    with pytest.raises(JobLocked, match=f"{keys.job(grandchild)} is locked by a worker"):
        parents.queue.remove("p")
    assert children.public() == before
    parents.queue.remove("p", with_children=False)
    assert parents.keys_of("p") == set()
    assert children.ids("wait") == ["c", "d", grandchild]


@pytest.mark.parametrize(
    ("of_parent", "of_child"),
    [
        ("dependencies", "dependencies"),
        ("dependencies", "processed"),
        ("processed", "failed"),
        ("failed", "unsuccessful"),
        ("unsuccessful", "processed"),
    ],
)
def test_jobs_that_are_children_of_each_other_are_removed(
    family: tuple[Bench, Bench], client: Redis, of_parent: str, of_child: str
) -> None:
    """Node's removal does not end when both are unfinished children, or none is."""
    parents, children = family
    parent, child = parents.handle.keys.job("p"), children.handle.keys.job("c")
    client.delete(f"{parent}:dependencies")
    for owner, kind, other in ((parent, of_parent, child), (child, of_child, parent)):
        if kind == "dependencies":
            adopt(client, owner, other)
        elif kind == "unsuccessful":
            client.zadd(f"{owner}:{kind}", {other: 1})
        else:
            client.hset(f"{owner}:{kind}", other, "1")
    parents.queue.remove("p")
    assert parents.keys_of("p") | children.keys_of("c") == set()
    assert children.ids("wait") == ["d"]


@pytest.mark.parametrize("chunk_size", [1, 3])
def test_a_large_cycle_is_removed_in_parts(make: Make, client: Redis, chunk_size: int) -> None:
    bench = make(chunk_size=chunk_size)
    ids = bench.fill("waiting-children", 10)
    for child, parent in zip(ids, [*ids[1:], ids[0]], strict=True):
        adopt(client, bench.handle.keys.job(parent), bench.handle.keys.job(child))
    bench.queue.remove(ids[4])
    assert set(bench.public()) <= {"events", "meta", "marker"}


def test_the_next_job_of_a_scheduler_is_not_removed(bench: Bench) -> None:
    current, former = "repeat:tick:1600000000000", "repeat:tick:1500000000000"
    bench.client.zadd(bench.key("repeats"), {"tick": 1_600_000_000_000})
    bench.put("delayed", [current, former], 1, rjk="tick")
    with pytest.raises(WrongState, match="remove the scheduler"):
        bench.queue.remove(current)
    others = bench.fill("delayed", 7)
    assert sorted(bench.queue.clean(0, state="delayed")) == sorted([former, *others])
    assert bench.ids("delayed") == [current]
    bench.move(current, "delayed", "wait")
    bench.fill("wait", 7)
    assert bench.queue.drain() == 7
    assert bench.ids("wait") == [current]
    bench.queue.obliterate()
    assert bench.public() == {}


# clean


def states_to_clean(bench: Bench) -> list[str]:
    return [state for state in bench.states if state != "waiting-children"]


@each_dialect
def test_old_jobs_are_cleaned_from_any_state_and_the_others_keep_their_order(bench: Bench) -> None:
    now = bench.handle.connection.now_ms()
    for state in states_to_clean(bench):
        old = bench.fill(state, 7)
        young = bench.fill(state, 2, at=now - 60_000)
        older = bench.fill(state, 5, at=LONG_AGO - 5)
        young += bench.fill(state, 2, at=now - 50_000)
        cleaned = bench.queue.clean(HOUR, state=state)
        assert sorted(cleaned) == sorted(old + older), state
        assert bench.ids(state) == young
        assert all(bench.keys_of(job_id) == set() for job_id in cleaned)
        assert bench.queue.clean(HOUR, state=state) == []
        assert sorted(bench.queue.clean(0, state=state)) == sorted(young)
        assert bench.ids(state) == []


@each_dialect
def test_no_more_than_the_limit_is_cleaned(bench: Bench) -> None:
    for state in states_to_clean(bench):
        ids = bench.fill(state, 10)
        cleaned = bench.queue.clean(0, limit=4, state=state)
        assert len(cleaned) == 4
        if bench.handle.dialect.states[state].kind == "set":
            assert set(cleaned) < set(ids)
        else:
            assert cleaned == ids[:4], "those to be taken next, or that ended first"
        assert sorted(bench.ids(state) + cleaned) == sorted(ids)
        assert bench.queue.clean(0, limit=3, state=state) != []
        assert len(bench.ids(state)) == 3
        bench.queue.clean(0, limit=100, state=state)
        assert bench.ids(state) == []


@each_dialect
def test_locked_jobs_are_not_cleaned(bench: Bench) -> None:
    ids = bench.fill("active", 10)
    held = ids[1:3] + ids[6:9]
    for job_id in held:
        bench.client.set(bench.handle.keys.lock(job_id), "worker")
    assert sorted(bench.queue.clean(0, state="active")) == sorted(set(ids) - set(held))
    assert bench.ids("active") == held


@pytest.mark.parametrize("flavour", ["bull-1"], indirect=True)
def test_cleaning_publishes_an_event_of_bull_1(bench: Bench, prefix: str) -> None:
    ids = bench.fill("failed", 4)
    with published(bench.client, prefix, bench.queue.name) as heard:
        bench.queue.clean(0, state="failed")
    assert {channel for channel, _ in heard} == {f"cleaned@{bench.queue.name}"}
    messages = [json.loads(message) for _, message in heard]
    assert sorted(job_id for message in messages for job_id in message[1]) == ids
    assert {(message[0], message[2]) for message in messages} == {(bench.handle.token, "failed")}


def test_states_that_cannot_be_cleaned_are_refused(bench: Bench) -> None:
    for grace_ms, limit in ((-1, 0), (0, -1), (0.5, 0), (0, True)):
        with pytest.raises(OptionError, match="an integer >= 0"):
            bench.queue.clean(grace_ms, limit)
    with pytest.raises(DialectError, match="expected a state of"):
        bench.queue.clean(0, state="nowhere")
    with pytest.raises(DialectError):
        bench.queue.clean(0, state="waiting-children")


# obliterate


@each_dialect
def test_obliterate_removes_everything_of_a_queue(bench: Bench) -> None:
    bench.add(4)
    bench.add(2, delay=HOUR)
    for state in bench.states:
        # A parent may wait for jobs of another queue, and is then not deleted.
        if state not in ("active", "waiting-children"):
            bench.fill(state, 7)
    for name in ("stalled", "metrics_completed_data") if bench.queue.protocol != "bull-1" else ():
        bench.client.sadd(bench.key(name), "x")
    bench.client.set(bench.handle.keys.job("7"), "no hash")
    bench.client.hset(bench.key("damaged"), "7", "key")
    bench.client.set(bench.key("rate_limited"), 1)
    manage.check_obliterate(bench.handle)
    for _ in range(2):
        bench.queue.obliterate()
        # Tells readers of results.
        assert (bench.public(), [*bench.private()]) == ({}, ["spark:queue:deleted"])
    assert bench.client.pttl(bench.handle.keys["deleted"]) > 0
    assert bench.add() == ["1"]
    assert bench.ids("wait") == ["1"]


@each_dialect
def test_a_busy_queue_is_obliterated_by_force_only(bench: Bench) -> None:
    bench.fill("wait", 5)
    active = bench.fill("active", 5)
    for job_id in active:
        bench.client.set(bench.handle.keys.lock(job_id), "worker")
    before = bench.public()
    with pytest.raises(QueueBusy, match=f"expected no active job in queue {bench.queue.name}, got 5") as busy:
        bench.queue.obliterate()
    with pytest.raises(QueueBusy):
        manage.check_obliterate(bench.handle)
    assert (busy.value.queue, busy.value.active) == (bench.queue.name, 5)
    assert bench.public() == before
    bench.queue.obliterate(force=True)
    assert bench.public() == {}


@each_dialect
def test_open_writes_outlive_an_obliterated_queue(bench: Bench) -> None:
    bench.fill("wait", 5)
    register_all(bench.handle, "w", [[NewJob({"n": n}) for n in range(4)]])
    bench.queue.obliterate()
    assert [record.added for record in recover(bench.handle)] == [4]
    assert bench.ids("wait") == ["1", "2", "3", "4"]


# receipts


def test_receipts_of_these_verbs_expire(bench: Bench) -> None:
    bench.fill("completed", 7)
    bench.queue.clean()
    # One for each sender, however many calls; a lost reply is repeated within an hour.
    (receipt,) = (name for name in bench.private() if name.startswith("spark:receipt:"))
    assert HOUR / 2 < bench.client.pttl(bench.handle.keys.base + receipt) <= HOUR


# orphaned jobs


def test_jobs_in_no_state_are_removed(bench: Bench, open_queue: Callable[..., BullQueue]) -> None:
    *lost, kept = bench.add(4)
    for job_id in lost:
        bench.client.lrem(bench.key("wait"), 1, job_id)
    bench.client.rpush(bench.handle.keys.logs(lost[0]), "a row")
    # The name of this queue begins with the name of the other one.
    longer = open_queue(f"{bench.queue.name}:repeat", protocol="bull-1")
    other = longer.add({})
    bench.client.delete(longer.handle.keys["wait"])
    assert [bench.queue.remove_orphans(limit) for limit in (1, 0, 0)] == [1, 2, 0]
    assert [bench.keys_of(job_id) for job_id in (*lost, kept)] == [set(), set(), set(), {kept, "wait"}]
    assert longer.job(other) is not None
    with pytest.raises(OptionError, match="expected `limit` to be an integer >= 0, got: -1"):
        bench.queue.remove_orphans(-1)
