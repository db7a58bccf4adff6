"""A key of a queue gets another type while workers and services run: other queues go on, and so does this one when it
is repaired. No job is lost or runs twice.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection
from threading import Event
from typing import Any

import pytest
from redis import Redis

from spark_bull import BullQueue, LocalWorker, NewJob, Promoter, QueueDamaged, Rescuer, RunningJob
from spark_bull.core.model.limits import WorkSettings
from spark_bull.core.model.outcomes import Outcomes
from spark_bull.core.options.parse import parse_arguments
from spark_bull.core.options.table import ServiceOptions
from spark_bull.core.queue.dispatch.roll_forward import recover, roll_forward
from spark_bull.core.queue.work.claim import rescue, work
from spark_bull.core.queue.work.verbs import promote_due
from spark_bull.run.claims import waits
from spark_bull.run.claims.lock_keeper import LockKeeper
from spark_bull.run.services import service
from spark_bull.run.slot import chunk_loop, slot_queue
from spark_bull.run.worker import slot_engine
from spark_bull.spark.collect.events import event_reader
from spark_bull.spark.collect.stream import result_reader
from spark_bull.spark.platform.datasource import FirstBatch
from spark_bull.spark.schemas import SCHEMAS
from tests.support.damage import DamagedKey, key_types, wrong_types
from tests.support.wait import PATIENCE_S, wait_until
from tests.support.without_spark import ClaimingQuery
from tests.support.work_bench import rescue_all
from tests.support.worker import OurWorker
from tests.support.writes import register_all

DIALECTS = ("bull-1", "bull", "bullmq")
DAY_MS = 86_400_000
#: Each key of BullMQ; of the other dialects, the scripts of a slot use the same ones.
KEYS = [*(("bullmq", *pair) for pair in wrong_types("bullmq")), ("bull", "completed", "string")]
Open = Callable[[str, str], BullQueue]


@pytest.fixture(autouse=True)
def _no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (waits, slot_queue):
        monkeypatch.setattr(module, "RETRY_S", 0.01)


def add(queue: BullQueue, count: int, **properties: Any) -> list[str]:
    return queue.add_many(NewJob({"n": n}, **properties) for n in range(count)).ids


def completes(queue: BullQueue, count: int) -> None:
    wait_until(lambda: queue.counts()["completed"] == count, f"{count} jobs of {queue.name} to complete")


@pytest.mark.parametrize(
    ("dialect", "name", "kind", "concurrency"), [(*key, number % 2 * 2 + 1) for number, key in enumerate(KEYS)]
)
def test_a_slot_goes_on_with_its_other_queues_and_then_with_all_jobs(
    open_queue: Open, client: Redis, dialect: str, name: str, kind: str, concurrency: int
) -> None:
    bad, good = open_queue("bad", dialect), open_queue("good", dialect)
    add(bad, 5)
    key = DamagedKey(client, bad.handle, name, kind)
    ran, is_running, may_end = Counter[str](), Event(), Event()

    def processor(job: RunningJob) -> None:
        ran[f"{job.handle.keys.queue} {job.id}"] += 1
        if job.handle is bad.handle:
            is_running.set()
            assert may_end.wait(PATIENCE_S)

    with OurWorker([bad.handle, good.handle], processor, concurrency=concurrency, chunk_size=2) as worker:
        assert is_running.wait(PATIENCE_S)
        with key.damaged():
            may_end.set()
            add(good, 4)
            completes(good, 4)
            assert worker.error is None
        completes(bad, 5)
    assert worker.error is None
    assert (worker.stats.completed, worker.stats.lost) == (9, 0)
    assert len(ran) == ran.total() == 9


def test_outcomes_that_wait_for_the_repair_keep_their_locks(
    open_queue: Open, client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the slot gives the rest of the chunk back meanwhile."""
    queue, release, released = open_queue("bad", "bullmq"), LockKeeper.release, list[list[str]]()
    key = DamagedKey(client, queue.handle, "completed", "string")
    ids, is_running, may_end = add(queue, 4), Event(), Event()
    monkeypatch.setattr(chunk_loop, "SETTLE_S", -1)
    monkeypatch.setattr(chunk_loop, "RETURN_S", PATIENCE_S)

    def recorded(keeper: LockKeeper, job_ids: Collection[str]) -> None:
        released.append([*job_ids])
        release(keeper, job_ids)

    def processor(job: RunningJob) -> None:
        is_running.set()
        assert may_end.wait(PATIENCE_S)
        if job.id == ids[1]:
            monkeypatch.setattr(chunk_loop, "RETURN_S", -1)

    monkeypatch.setattr(LockKeeper, "release", recorded)
    with OurWorker([queue.handle], processor, chunk_size=4) as worker:
        assert is_running.wait(PATIENCE_S)
        with key.damaged():
            may_end.set()
            wait_until(lambda: released, "the end of the chunk")
            assert released[0] == []
        completes(queue, 4)
    assert worker.stats.lost == 0


def test_a_keeper_of_locks_warns_once_of_a_damaged_key_and_tells_of_its_repair(
    open_queue: Open, client: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    queue = open_queue("bad", "bullmq")
    add(queue, 1)
    claim = work(queue.handle, WorkSettings("slot", lock_ms=DAY_MS), None, 1)
    lock, tries, extend = queue.handle.keys.lock(claim.jobs[0].id), Counter[str](), LockKeeper.extend

    class Keeper(LockKeeper):
        def extend(self) -> None:
            tries["all"] += 1
            extend(self)

    with Keeper(queue.handle, 30) as keeper:
        with DamagedKey(client, queue.handle, "stalled", "string").damaged():
            keeper.hold(claim.token, [claim.jobs[0].id], own_ms={claim.jobs[0].id: 2 * DAY_MS})
            wait_until(lambda: tries["all"] > 5, "some tries to extend the lock")
        wait_until(lambda: client.pttl(lock) > DAY_MS, "the lock to be extended")
        wait_until(lambda: "locks are extended again" in caplog.text, "the repair to be logged")
    assert caplog.text.count("queue bad: could not extend locks, trying again until it is repaired") == 1
    assert caplog.text.count("locks are extended again") == 1


def test_a_job_of_a_scheduler_runs_while_the_key_of_all_schedulers_has_another_type(
    open_queue: Open, client: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    queue = open_queue("q", "bullmq")
    queue.upsert_scheduler("daily", every=DAY_MS)
    for job_id in client.zrange(queue.handle.keys["delayed"], 0, -1):
        queue.promote(job_id.decode())
    with DamagedKey(client, queue.handle, "repeats", "string").damaged():
        with OurWorker([queue.handle], lambda job: None):
            completes(queue, 1)
        assert "the job scheduler of job" in caplog.text


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_script_changes_anything_while_a_key_has_another_type(open_queue: Open, client: Redis, dialect: str) -> None:
    """Or it does not need the key."""
    for name, kind in wrong_types(dialect):
        check_damage(open_queue(name, dialect), client, name, kind)


def check_damage(queue: BullQueue, client: Redis, name: str, kind: str) -> None:
    handle = queue.handle
    jobs = [NewJob({"n": n}, attempts=2) for n in range(4)]
    add(queue, 4)
    add(queue, 2, delay=1)
    claim = work(handle, WorkSettings("slot", lock_ms=DAY_MS), None, 2)
    dead = work(handle, WorkSettings("dead", lock_ms=DAY_MS), None, 1)
    client.delete(handle.keys.lock(dead.jobs[0].id))
    outcomes = Outcomes(claim.token)
    outcomes.complete(claim.jobs[0].id, "1")
    outcomes.unstarted.append(claim.jobs[1].id)
    register_all(handle, "w", [jobs])
    verbs: list[Callable[[], object]] = [
        lambda: work(handle, WorkSettings("slot"), outcomes, 3),
        lambda: promote_due(handle),
        lambda: rescue(handle, check_ms=1, max_stalled=9),
        lambda: roll_forward(handle, "w"),
        lambda: queue.add_many(jobs),
        lambda: queue.pause(),
        lambda: queue.remove(dead.jobs[0].id),
    ]
    for verb in verbs:
        with DamagedKey(client, handle, name, kind).damaged():
            before = contents(client, handle.keys.base)
            error = damage_of(verb)
            if error:
                right = key_types(queue.protocol)[name]
                assert f"expected {handle.keys[name]} to be a {right}, found a {kind}" in error
                assert contents(client, handle.keys.base) == before


def damage_of(verb: Callable[[], object]) -> str:
    try:
        verb()
    except QueueDamaged as error:
        return str(error)
    return ""


def contents(client: Redis, base: str) -> dict[bytes, bytes | None]:
    """All keys with their values; only the time of the last check for stalled jobs may change."""
    keys = sorted(key for key in client.scan_iter(f"{base}*", count=1000) if b"check" not in key)
    return {key: client.dump(key) for key in keys}


def test_a_stopped_slot_does_not_wait_until_its_queue_is_repaired(
    open_queue: Open, client: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    queue = open_queue("bad", "bullmq")
    add(queue, 2)
    is_running, may_end = Event(), Event()

    def processor(job: RunningJob) -> None:
        is_running.set()
        assert may_end.wait(PATIENCE_S)

    worker = OurWorker(queue.handle, processor, lock_ms=DAY_MS)
    key = DamagedKey(client, queue.handle, "completed", "string")
    with worker:
        assert is_running.wait(PATIENCE_S)
        key.damage()
        may_end.set()
        wait_until(lambda: worker.loop._report._damaged, "the slot to find the damage")
    key.repair()
    assert worker.error is None
    assert "outcomes of 1 jobs are lost, which run again after their locks expire" in caplog.text
    rescue_all(queue.handle, [job.id for job in queue.page("active")])
    with OurWorker(queue.handle, lambda job: None):
        wait_until(lambda: queue.counts()["completed"] == 2, "both jobs to complete")


def test_a_damaged_queue_is_logged_once_and_shown_by_the_status(
    open_queue: Open, client: Redis, redis_url: str, prefix: str, caplog: pytest.LogCaptureFixture, monkeypatch: Any
) -> None:
    monkeypatch.setattr(slot_engine, "FAILURES_S", 0.05)
    bad, good = open_queue("bad", "bullmq"), open_queue("good", "bullmq")
    connection = {"url": redis_url, "prefix": prefix, "protocol": "bullmq"}
    key = DamagedKey(client, bad.handle, "wait", "zset")
    found = f"expected {key.key} to be a list, found a zset"
    with LocalWorker(queues=["bad", "good"], processor=lambda job: None, slots=3, **connection) as worker:
        add(good, 1)
        completes(good, 1)
        with key.damaged():
            wait_until(lambda: found in worker.status().damaged.get("bad", ""), "the status to show the damage")
            assert str(worker.status()).endswith("; damaged: bad")
            add(good, 20)
            completes(good, 21)
        wait_until(lambda: worker.status().damaged == {}, "the damage to be gone")
        add(bad, 3)
        completes(bad, 3)
        wait_until(lambda: "queue bad is no longer damaged" in caplog.text, "the end of the damage to be logged")
    of_worker = [one.getMessage() for one in caplog.records if one.getMessage().startswith("worker")]
    assert [message.count(found) for message in of_worker] == [1, 0], of_worker
    assert worker.status().restarts == 0


@pytest.mark.parametrize("name", ["delayed", "wait", pytest.param("meta", marks=pytest.mark.rest)])
def test_a_promoter_goes_on_with_its_other_queues(
    open_queue: Open, client: Redis, redis_url: str, prefix: str, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    bad, good = open_queue("bad", "bullmq"), open_queue("good", "bullmq")
    key = DamagedKey(client, bad.handle, name, "string")
    add(bad, 2, delay=100)
    with key.damaged(), Promoter(redis_url, ["bad", "good"], prefix=prefix, protocol="bullmq", check_ms=50) as promoter:
        register_all(good.handle, "w", [[NewJob({})]])
        add(good, 2, delay=100)
        wait_until(lambda: good.counts()["wait"] == 3, "the jobs of the other queue to be promoted")
        key.repair()
        wait_until(lambda: bad.counts()["wait"] == 2, "the jobs to be promoted when the queue is repaired")
        assert promoter.running
    errors = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert len(errors) == len({*errors})
    assert all(error.startswith("queue bad: could not ") for error in errors)


@pytest.mark.parametrize("name", ["paused", "delayed"])
def test_a_queue_whose_dialect_a_damaged_key_hides_is_opened_with_the_protocol_only(
    open_queue: Open,
    client: Redis,
    redis_url: str,
    prefix: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: Any,
    name: str,
) -> None:
    """Its jobs are found by this key alone; without them, it could be Bull's. A service waits for the repair."""
    monkeypatch.setattr(service, "MISSING_S", 0.0)
    add(open_queue("good", "bullmq"), 1)
    queue, connection = open_queue("bad", "bull-1"), {"url": redis_url, "prefix": prefix}
    if name == "paused":
        queue.pause()
    add(queue, 1, delay=3_600_000 if name == "delayed" else 0)
    key = DamagedKey(client, queue.handle, name, "string")
    with key.damaged():
        kind = "zset" if name == "delayed" else "list"
        with pytest.raises(QueueDamaged, match=f"expected {key.key} to be a {kind}, found a string, so that the dial"):
            LocalWorker("bad", print, **connection)
        queues = service.QueueSet(parse_arguments(connection, ServiceOptions), ["bad", "good"])
        assert [handle.keys.queue for handle in queues.handles()] == ["good"]
        assert "queue bad: could not detect its dialect" in caplog.text
        assert not queues.complete
        with BullQueue("bad", protocol="bull-1", **connection) as known:
            assert known.protocol == "bull-1"
    with BullQueue("bad", **connection) as repaired:
        assert repaired.protocol == "bull-1"
    wait_until(lambda: len(queues.handles()) == 2, "both queues")


def test_a_rescuer_goes_on_with_its_other_queues(
    open_queue: Open, client: Redis, redis_url: str, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    queues = bad, good = open_queue("bad", "bullmq"), open_queue("good", "bullmq")
    for queue in queues:
        add(queue, 1)
        assert work(queue.handle, WorkSettings("dead", lock_ms=1), None, 1).claimed == 1
    key = DamagedKey(client, bad.handle, "active", "string")
    with key.damaged(), Rescuer(redis_url, ["bad", "good"], prefix=prefix, protocol="bullmq", check_ms=10):
        wait_until(lambda: good.counts()["wait"] == 1, "the job of the other queue to be rescued")
        key.repair()
        wait_until(lambda: bad.counts()["wait"] == 1, "the job to be rescued when the queue is repaired")
    assert sum("queue bad: could not rescue jobs" in one.getMessage() for one in caplog.records) == 1


def test_a_write_to_a_damaged_queue_is_finished_when_the_queue_is_repaired(open_queue: Open, client: Redis) -> None:
    queue = open_queue("bad", "bullmq")
    register_all(queue.handle, "w", [[NewJob({"n": n}, job_id=f"key-{n}") for n in range(6)]], 2)
    for name, kind in wrong_types("bullmq"):
        with DamagedKey(client, queue.handle, name, kind).damaged():
            try:
                recover(queue.handle)
            except QueueDamaged:
                assert not client.exists(queue.handle.keys.job("key-0")) or name in ("failed", "stalled")
    recover(queue.handle)
    assert [job.id for job in queue.page("wait")] == [f"key-{n}" for n in range(6)]
    assert [(one.state, one.added, one.duplicates) for one in queue.writes()] == [("finished", 6, 0)]


@pytest.mark.parametrize("name", ["wait", "active"])
def test_a_claiming_query_waits_for_the_repair_but_one_that_ends_with_the_jobs_of_now_fails(
    open_queue: Open, client: Redis, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    queue = open_queue("bad", "bullmq")
    add(queue, 2)
    going_on, ending, too_late = (ClaimingQuery(queue) for _ in range(3))
    ending.reader.prepareForTriggerAvailableNow()
    key = DamagedKey(client, queue.handle, name, "string")
    with key.damaged():
        for _ in range(3):
            assert going_on.batch() == []
        with pytest.raises(QueueDamaged, match=key.key):
            ending.batch()
        if name == "wait":
            with pytest.raises(QueueDamaged):
                too_late.reader.prepareForTriggerAvailableNow()
    wait_until(lambda: len(going_on.batch()) == 2, "the jobs to be claimed")
    told = [(one.levelno, key.key in one.getMessage()) for one in caplog.records if "no jobs are" in one.getMessage()]
    assert told == [(logging.ERROR, True)]
    assert caplog.text.count("queue bad is no longer damaged: jobs are claimed again") == 1


def test_a_query_of_events_goes_on_with_its_other_queues_but_one_of_the_events_until_now_fails(
    open_queue: Open, client: Redis, redis_url: str, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = open_queue("bad", "bullmq"), open_queue("good", "bullmq")
    add(bad, 1), add(good, 1)
    options = {"url": redis_url, "prefix": prefix, "queue": "bad,good", "view": "events"}
    going_on, ending, too_late = (event_reader(options, SCHEMAS["events"]) for _ in range(3))
    limit, began = going_on.getDefaultReadLimit(), going_on.initialOffset()
    ending.prepareForTriggerAvailableNow()
    first = going_on.latestOffset(began, limit)
    add(bad, 1), add(good, 1)
    with DamagedKey(client, bad.handle, "events", "string").damaged():
        second = going_on.latestOffset(first, limit)
        assert [second["queues"][name] == first["queues"][name] for name in ("bad", "good")] == [True, False]
        going_on.latestOffset(first, limit)
        with pytest.raises(QueueDamaged):
            ending.latestOffset(first, limit)
        with pytest.raises(QueueDamaged):
            too_late.prepareForTriggerAvailableNow()

    def is_after() -> bool:
        return bool(going_on.latestOffset(second, limit)["queues"]["bad"] != first["queues"]["bad"])

    wait_until(is_after, "the events of the repaired queue")
    assert caplog.text.count("queue bad: could not look for events, trying again until it is repaired") == 1


@pytest.mark.parametrize("view", ["jobs", "events"])
def test_the_first_batch_fails_where_pyspark_does_not_tell_whether_it_is_the_last_one(
    open_queue: Open, client: Redis, redis_url: str, prefix: str, view: str
) -> None:
    bad, good = open_queue("bad", "bullmq"), open_queue("good", "bullmq")
    add(bad, 1), add(good, 1)
    options = {"url": redis_url, "prefix": prefix, "queue": "bad,good", "protocol": "bullmq"}
    reader = {"jobs": result_reader, "events": event_reader}[view](options, SCHEMAS[view])
    start = reader.initialOffset()
    with DamagedKey(client, bad.handle, "completed" if view == "jobs" else "events", "string").damaged():
        with pytest.raises(QueueDamaged):
            reader.latestOffset(start, FirstBatch(None))
        assert "good" in reader.latestOffset(start, reader.getDefaultReadLimit())["queues"]
