"""Pause, resume, retry, promote, remove, clean, drain and obliterate in every dialect.

Every script is sent again after its reply, as if the reply had been lost. The second reply must equal the first one,
and the second call must have no effect.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from redis import Redis

from spark_bull.core.errors import DialectError, JobLocked, JobMissing, OptionError, QueueBusy, WrongState
from spark_bull.core.model.jobs import NewJob
from spark_bull.core.model.limits import WorkSettings
from spark_bull.core.model.queues import QueueLimits
from spark_bull.core.model.read_jobs import Change
from spark_bull.core.queue import managing
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.dispatch.roll_forward import recover
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.manage import manage
from spark_bull.core.queue.work.claim import work
from tests.support.dump import PRIVATE, dump
from tests.support.jobs import HOUR
from tests.support.traffic import published, send_scripts_twice
from tests.support.writes import register_all

LONG_AGO = 1_600_000_000_000


@dataclass(frozen=True)
class Flavour:
    """A dialect, and for BullMQ the major version."""

    dialect: str
    version: str = "auto"

    def __str__(self) -> str:
        return self.dialect if self.version == "auto" else f"{self.dialect}-{self.version}"

    @property
    def bullmq(self) -> bool:
        return self.dialect == "bullmq"

    @property
    def paused_list(self) -> str:
        """Where the waiting jobs of a paused queue are."""
        return "wait" if self.version == "6" else "paused"


FLAVOURS = [Flavour("bull-1"), Flavour("bull"), Flavour("bullmq", "5"), Flavour("bullmq", "6")]

each_flavour = pytest.mark.parametrize("flavour", FLAVOURS, ids=str, indirect=True)
each_dialect = pytest.mark.parametrize("flavour", [*FLAVOURS[:2], FLAVOURS[3]], ids=str, indirect=True)
only_bull = pytest.mark.parametrize("flavour", [FLAVOURS[1]], ids=str, indirect=True)


@dataclass
class Bench:
    """One queue, and methods that put jobs into any state without a worker."""

    flavour: Flavour
    client: Redis
    queue: BullQueue
    made: int = field(default=0)

    @property
    def handle(self) -> QueueHandle:
        return self.queue.handle

    def key(self, name: str) -> str:
        return self.handle.keys.base + name

    def add(self, count: int = 1, **properties: Any) -> list[str]:
        added = self.queue.add_many([NewJob({"n": n}, **properties) for n in range(count)])
        return added.ids

    def put(self, state: str, count: int = 1, *, at: int = LONG_AGO, **fields: Any) -> list[str]:
        """Creates jobs in a state; `at` is when they were added, started and finished."""
        ids = [f"j{self.made + n:04}" for n in range(count)]
        self.made += count
        store = self.handle.dialect.state_key(state)
        times = {"timestamp": at}
        if state in ("completed", "failed"):
            outcome = {"completed": {"returnvalue": "1"}, "failed": {"failedReason": "bad", "stacktrace": "[]"}}[state]
            times |= {"processedOn": at, "finishedOn": at} if self.flavour.dialect != "bull-1" else {}
            fields = outcome | fields
        for job_id in ids:
            hash_fields = {"name": "x", "data": "{}", "opts": "{}", "attempts": 1} | times | fields
            self.client.hset(self.key(job_id), mapping=hash_fields)
            match store.kind:
                case "list":
                    self.client.lpush(self.key(state), job_id)
                case "zset":
                    self.client.zadd(self.key(state), {job_id: at * 4096 if state == "delayed" else at})
                case "set":
                    self.client.sadd(self.key(state), job_id)
        return ids

    def ids(self, state: str) -> list[str]:
        """Ids of a state; those of a list in the order of processing."""
        store = self.handle.dialect.state_key(state)
        match store.kind:
            case "list":
                found = self.client.lrange(self.key(state), 0, -1)[::-1]
            case "zset":
                found = self.client.zrange(self.key(state), 0, -1)
            case _:
                found = sorted(self.client.smembers(self.key(state)))
        return [job_id.decode() for job_id in found]

    def keys_of(self, job_id: str) -> set[str]:
        """All keys of a job, and the states that contain its id."""
        left = {name for name in self.public() if name == job_id or name.startswith(f"{job_id}:")}
        return left | {state for state in self.handle.dialect.states if job_id in self.ids(state)}

    def public(self) -> dict[str, Any]:
        whole = dump(self.client, self.handle.keys.prefix, self.queue.name)
        return {name: key.value for name, key in whole.items() if not name.startswith(PRIVATE)}

    def markers(self) -> list[tuple[str, float]]:
        return self.public().get("marker", [])


Make = Callable[..., Bench]


@pytest.fixture
def flavour(request: pytest.FixtureRequest) -> Flavour:
    return getattr(request, "param", FLAVOURS[3])


@pytest.fixture
def make(client: Redis, open_queue: Callable[..., BullQueue], prefix: str, monkeypatch: pytest.MonkeyPatch) -> Make:
    send_scripts_twice(monkeypatch, alike=True)

    def open_bench(flavour: Flavour, name: str = "q", **options: Any) -> Bench:
        options = {"protocol": flavour.dialect, "bullmq_version": flavour.version, **options}
        # Bull 1 publishes outside the prefix, so the name of the queue must be unique.
        return Bench(flavour, client, open_queue(f"{name}-{prefix}", **options))

    return open_bench


@pytest.fixture
def bench(make: Make, flavour: Flavour) -> Bench:
    """A queue whose operations handle three jobs per script."""
    return make(flavour, chunk_size=3)


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
        older, newer = bench.put("paused", paused), bench.put("wait", waiting)
        bench.queue.pause()
        if bench.flavour.paused_list == "paused":
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
    assert seen == [not bench.flavour.bullmq, bench.flavour.dialect != "bull-1"]


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
    claim = work(bench.handle, WorkSettings("slot"), None, 1)
    assert (claim.jobs, claim.limited_ms > 0) == ([], True)
    bench.queue.remove_rate_limit()
    bench.queue.remove_limits()
    assert bench.queue.limits() == QueueLimits(None, None, None)
    assert len(work(bench.handle, WorkSettings("slot"), None, 1).jobs) == 1


def test_changed_limits_wake_workers_if_jobs_may_start(bench: Bench) -> None:
    bench.put("active", 2)
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
    (waiting,), (failed,), (active,) = bench.put("wait"), bench.put("failed"), bench.put("active")
    bench.client.set(bench.key(f"{active}:lock"), "worker")
    before = bench.public()
    with pytest.raises(JobMissing, match=r"expected a job nobody in queue .*, found none") as missing:
        bench.queue.retry("nobody")
    assert (missing.value.queue, missing.value.job_id) == (bench.queue.name, "nobody")
    with pytest.raises(WrongState, match=f"expected job {waiting} of queue .* to be failed, it is wait"):
        bench.queue.retry(waiting)
    with pytest.raises(DialectError, match="got: 'delayed'"):
        bench.queue.retry(failed, state="delayed")
    if not bench.flavour.bullmq:
        with pytest.raises(DialectError, match="got: 'completed'"):
            bench.queue.retry(failed, state="completed")
        bench.client.set(bench.key(f"{failed}:lock"), "worker")
        with pytest.raises(JobLocked, match=f"job {failed} of queue .* is locked by a worker"):
            bench.queue.retry(failed)
        bench.client.delete(bench.key(f"{failed}:lock"))
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
    for state in bench.handle.dialect.states:
        lost, *others = bench.put(state, 3)
        bench.client.delete(bench.key(lost))
        bench.queue.remove(lost)
        assert sorted(bench.ids(state)) == sorted(others)
        with pytest.raises(JobMissing):
            bench.queue.remove(lost)
    lost = bench.put("delayed", 1)[0]
    bench.client.delete(bench.key(lost))
    with pytest.raises(JobMissing):
        bench.queue.promote(lost)
    assert lost not in bench.ids("delayed")


@each_flavour
def test_an_id_that_equals_another_key_is_not_treated_as_a_job(bench: Bench) -> None:
    for state in bench.handle.dialect.states:
        (job_id,) = bench.put(state)
    bench.queue.add({})
    bench.queue.pause()
    bench.client.set(bench.key(f"{job_id}:lock"), "theirs")
    bench.client.rpush(bench.key(f"{job_id}:logs"), "line")
    bench.client.hset(bench.key("metrics:completed"), "count", 3)
    before = bench.public()
    assert {"wait" if bench.flavour.version == "6" else "paused", "id", "completed"} <= before.keys()
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
    def remember(job_id: str) -> None:
        bench.client.hset(bench.key(job_id), "deid", "once")
        bench.client.set(bench.key("de:once"), job_id)
        bench.client.zadd(bench.key("priority"), {job_id: 3})
        bench.client.hset(bench.key("limiter:index"), job_id, bench.key("limiter:g:limited"))
        bench.client.sadd(bench.key("limiter:g:limited"), job_id)

    def remove() -> None:
        bench.queue.remove(bench.ids("wait")[0])

    verbs: list[Callable[[], Any]] = [remove, bench.queue.drain, lambda: bench.queue.clean(0, state="wait")]
    for verb in verbs:
        (job_id,) = bench.put("wait")
        remember(job_id)
        verb()
        assert bench.public() == {}
    job_id = "de:ad:lock"
    bench.client.hset(bench.key(job_id), mapping={"data": "{}", "opts": "{}", "timestamp": LONG_AGO})
    bench.client.lpush(bench.key("wait"), job_id)
    bench.queue.remove(job_id)
    assert bench.public() == {}


@dataclass
class Family:
    """A parent in waiting-children, and its waiting children, in the same queue or in another one."""

    parents: Bench
    children: Bench
    parent: str
    ids: list[str]

    def adopt(self, ids: list[str]) -> None:
        for child in ids:
            self.parents.client.hset(self.children.key(child), "parentKey", self.parents.key(self.parent))
            self.parents.client.sadd(self.parents.key(f"{self.parent}:dependencies"), self.children.key(child))


@pytest.fixture(params=["one queue", "two queues"])
def family(request: pytest.FixtureRequest, make: Make, flavour: Flavour) -> Family:
    children = make(flavour, "children", chunk_size=3)
    parents = make(flavour, "parents", chunk_size=3) if request.param == "two queues" else children
    (parent,) = parents.put("waiting-children")
    children.made = parents.made
    family = Family(parents, children, parent, children.put("wait", 2))
    family.adopt(family.ids)
    return family


def test_a_locked_child_prevents_the_removal_of_its_parent_unless_it_is_removed_alone(family: Family) -> None:
    (grandchild,) = family.children.put("active")
    owner = Family(family.children, family.children, family.ids[0], [])
    owner.adopt([grandchild])
    family.children.client.set(family.children.key(f"{grandchild}:lock"), "worker")
    before = family.children.public()
    with pytest.raises(JobLocked, match=f"{family.children.key(grandchild)} is locked by a worker"):
        family.parents.queue.remove(family.parent)
    assert family.children.public() == before
    family.parents.queue.remove(family.parent, with_children=False)
    assert family.parents.keys_of(family.parent) == set()
    assert family.children.ids("wait") == family.ids


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
def test_jobs_that_are_children_of_each_other_are_removed(family: Family, of_parent: str, of_child: str) -> None:
    """Node's removal does not end when both are unfinished children, or none is."""
    client, parent, child = family.parents.client, family.parents.key(family.parent), family.children.key(family.ids[0])
    client.delete(f"{parent}:dependencies")
    for owner, kind, other in ((parent, of_parent, child), (child, of_child, parent)):
        if kind == "dependencies":
            client.sadd(f"{owner}:{kind}", other)
            client.hset(other, "parentKey", owner)
        elif kind == "unsuccessful":
            client.zadd(f"{owner}:{kind}", {other: 1})
        else:
            client.hset(f"{owner}:{kind}", other, "1")
    family.parents.queue.remove(family.parent)
    assert family.parents.keys_of(family.parent) | family.children.keys_of(family.ids[0]) == set()
    assert family.parents.ids("waiting-children") == []
    assert family.children.ids("wait") == family.ids[1:]


@pytest.mark.parametrize("chunk_size", [1, 3])
def test_a_large_cycle_is_removed_in_parts(make: Make, flavour: Flavour, chunk_size: int) -> None:
    bench = make(flavour, chunk_size=chunk_size)
    ids = bench.put("waiting-children", 10)
    for child, parent in zip(ids, [*ids[1:], ids[0]], strict=True):
        Family(bench, bench, parent, []).adopt([child])
    bench.queue.remove(ids[4])
    assert set(bench.public()) <= {"events", "meta", "marker"}


def test_the_next_job_of_a_scheduler_is_not_removed(bench: Bench) -> None:
    current, former = "repeat:tick:1600000000000", "repeat:tick:1500000000000"
    bench.client.zadd(bench.key("repeat"), {"tick": 1_600_000_000_000})
    for job_id in (current, former):
        fields = {"name": "x", "data": "{}", "opts": "{}", "timestamp": 1, "rjk": "tick"}
        bench.client.hset(bench.key(job_id), mapping=fields)
    bench.client.zadd(bench.key("delayed"), {current: 1, former: 1})
    with pytest.raises(WrongState, match="remove the scheduler"):
        bench.queue.remove(current)
    others = bench.put("delayed", 7)
    assert sorted(bench.queue.clean(0, state="delayed")) == sorted([former, *others])
    assert bench.ids("delayed") == [current]
    bench.client.zrem(bench.key("delayed"), current)
    bench.client.rpush(bench.key("wait"), current)
    bench.put("wait", 7)
    assert bench.queue.drain() == 7
    assert bench.ids("wait") == [current]
    bench.queue.obliterate()
    assert bench.public() == {}


# clean


def states_to_clean(flavour: Flavour) -> list[str]:
    states = ["completed", "failed", "wait", "paused", "active", "delayed"]
    return [*states, "prioritized"] if flavour.bullmq else states


@each_dialect
def test_old_jobs_are_cleaned_from_any_state_and_the_others_keep_their_order(bench: Bench) -> None:
    now = bench.handle.connection.now_ms()
    for state in states_to_clean(bench.flavour):
        old = bench.put(state, 7)
        young = bench.put(state, 2, at=now - 60_000)
        older = bench.put(state, 5, at=LONG_AGO - 5)
        young += bench.put(state, 2, at=now - 50_000)
        cleaned = bench.queue.clean(HOUR, state=state)
        assert sorted(cleaned) == sorted(old + older), state
        assert bench.ids(state) == young
        assert all(bench.keys_of(job_id) == set() for job_id in cleaned)
        assert bench.queue.clean(HOUR, state=state) == []
        assert sorted(bench.queue.clean(0, state=state)) == sorted(young)
        assert bench.ids(state) == []


@each_dialect
def test_no_more_than_the_limit_is_cleaned(bench: Bench) -> None:
    for state in states_to_clean(bench.flavour):
        ids = bench.put(state, 10)
        cleaned = bench.queue.clean(0, limit=4, state=state)
        assert len(cleaned) == 4
        if bench.handle.dialect.state_key(state).kind == "set":
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
    ids = bench.put("active", 10)
    held = ids[1:3] + ids[6:9]
    for job_id in held:
        bench.client.set(bench.key(f"{job_id}:lock"), "worker")
    assert sorted(bench.queue.clean(0, state="active")) == sorted(set(ids) - set(held))
    assert bench.ids("active") == held


@pytest.mark.parametrize("flavour", [FLAVOURS[0]], ids=str, indirect=True)
def test_cleaning_publishes_an_event_of_bull_1(bench: Bench, prefix: str) -> None:
    ids = bench.put("failed", 4)
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
    for state in bench.handle.dialect.states:
        # A parent may wait for jobs of another queue, and is then not deleted.
        if state not in ("active", "waiting-children"):
            bench.put(state, 7)
    for name in ("stalled", "metrics:completed:data"):
        bench.client.sadd(bench.key(name), "x") if bench.flavour.dialect != "bull-1" else None
    manage.check_obliterate(bench.handle)
    for _ in range(2):
        bench.queue.obliterate()
        # Tells readers of results.
        assert [*dump(bench.client, bench.handle.keys.prefix, bench.queue.name)] == ["spark:queue:deleted"]
    assert bench.client.pttl(bench.handle.keys["deleted"]) > 0
    assert bench.add() == ["1"]
    assert bench.ids("wait") == ["1"]


@each_dialect
def test_a_busy_queue_is_obliterated_by_force_only(bench: Bench) -> None:
    bench.put("wait", 5)
    active = bench.put("active", 5)
    for job_id in active:
        bench.client.set(bench.key(f"{job_id}:lock"), "worker")
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
    bench.put("wait", 5)
    register_all(bench.handle, "w", [[NewJob({"n": n}) for n in range(4)]])
    bench.queue.obliterate()
    assert [record.added for record in recover(bench.handle)] == [4]
    assert bench.ids("wait") == ["1", "2", "3", "4"]


# receipts


def test_receipts_of_these_verbs_expire(bench: Bench) -> None:
    bench.put("completed", 7)
    bench.queue.clean()
    private = dump(bench.client, bench.handle.keys.prefix, bench.queue.name)
    receipts = [name for name in private if name.startswith(f"{PRIVATE}receipt:")]
    assert len(receipts) == 1, "one for each sender, however many calls"
    assert HOUR / 2 < bench.client.pttl(bench.key(receipts[0])) <= HOUR, "a lost reply is repeated within an hour"


# orphaned jobs


def test_jobs_in_no_state_are_removed(bench: Bench, prefix: str, redis_url: str) -> None:
    first, second, third, kept = bench.add(4)
    for job_id in (first, second, third):
        bench.client.lrem(bench.key("wait"), 1, job_id)
    bench.client.rpush(bench.handle.keys.logs(first), "a row")
    longer = BullQueue(f"{bench.queue.name}:repeat", url=redis_url, prefix=prefix, protocol="bull-1")
    other = longer.add({})
    bench.client.delete(longer.handle.keys["wait"])
    assert bench.queue.remove_orphans(limit=1) == 1
    assert bench.queue.remove_orphans() == 2
    assert not bench.client.exists(bench.key(first), bench.key(f"{first}:logs"), bench.key(second), bench.key(third))
    assert (bench.ids("wait"), bench.queue.remove_orphans()) == ([kept], 0)
    # It belongs to a queue whose name begins with that of the other one.
    assert longer.job(other) is not None
    with pytest.raises(OptionError, match="expected `limit` to be an integer >= 0, got: -1"):
        bench.queue.remove_orphans(-1)
