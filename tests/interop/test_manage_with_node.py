"""Node goes on after what we did to a queue, and we after what Node did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

from spark_bull import BullQueue, Guard, NewJob, OptionError, Promoter
from spark_bull.core.queue.dispatch.roll_forward import KnownWrites, roll_forward
from spark_bull.core.queue.dispatch.written import find_written
from spark_bull.core.queue.monitor.find import describe
from spark_bull.ops.cli.doctor.finding import Finding
from spark_bull.ops.cli.doctor.queues import leftovers
from tests.support.jobs import HOUR, job
from tests.support.node import NodePeer, Peer, each_peer_of
from tests.support.steps import Steps
from tests.support.two_sides import Answers
from tests.support.wait import wait_until
from tests.support.writes import register_all

pytestmark = pytest.mark.interop

Open = Callable[..., BullQueue]


@pytest.fixture
def queue(peer: Peer, open_queue: Open, prefix: str) -> BullQueue:
    # Bull 1 publishes outside the prefix, so the name of the queue must be unique.
    return open_queue(f"q-{prefix}", peer.dialect)


@each_peer_of("bull-4", "bullmq")
def test_obliterate_of_node_is_no_loss_of_our_writes_whose_jobs_are_gone(theirs: NodePeer, queue: BullQueue) -> None:
    known = KnownWrites()
    register_all(queue.handle, "write", [[NewJob({"n": n}) for n in range(3)]])
    roll_forward(queue.handle, "write")
    assert known.lost([queue.handle]) == []
    theirs.call("obliterate", queue=queue.name)
    assert sum(queue.counts().values()) == 0
    assert known.lost([queue.handle]) == []
    queue.add({})
    with pytest.raises(OptionError, match="The queue was deleted after the write"):
        find_written([queue.handle], "write")


@each_peer_of("bullmq")
def test_a_queue_is_maxed_when_node_says_so(theirs: NodePeer, queue: BullQueue) -> None:
    def both(expected: bool) -> None:
        assert queue.is_maxed() is expected
        assert theirs.call("invoke", queue=queue.name, method="isMaxed") is expected

    theirs.call("add", queue=queue.name, jobs=[job("hang")] * 3)
    both(False)
    queue.set_limits(concurrency=2)
    both(False)
    theirs.call("process", queue=queue.name, concurrency=3)
    for limit in (2, 3):
        queue.set_limits(concurrency=limit)
        wait_until(lambda limit=limit: queue.counts()["active"] == limit, f"{limit} jobs to start")
        both(True)
    queue.remove_limits()
    both(False)
    theirs.call("stop", queue=queue.name, force=True)


@each_peer_of("bull", "bullmq")
@pytest.mark.parametrize("does", ["complete", "give up"])
def test_jobs_that_we_end_unclaimed_are_as_those_that_a_node_worker_ends(steps: Steps, does: str) -> None:
    steps.begin()
    steps.by_node("add", queue="main", jobs=[job(), job(delay=HOUR)])
    (claimed,) = steps.node("claim", queue="main", count=1, token="t")
    outcome = {"jobId": claimed["id"], "token": "t", "does": does, "value": "7" if does == "complete" else "bad"}
    steps.node("settle", queue="main", outcomes=[outcome])
    ours = steps.ours["main"]
    ours.complete("1", "7") if does == "complete" else ours.fail("1", "bad")
    # No worker has claimed it, and no exception has a trace.
    fields = ("processedOn", "ats", "pb", "stacktrace", "attemptsMade", "finishedOn")
    keys = ("published", *(f"main:{name}" for name in ("events", "marker", "stalled", "meta", "limiter")))
    known = (*(f"main:1.hash.{field}" for field in fields), *keys)
    assert [one for one in steps.differences(Answers()) if not one.startswith(known)] == []
    assert steps.ids("main", "completed" if does == "complete" else "failed") == ["1"]


def test_no_job_is_lost_when_both_versions_of_bullmq_paused(
    node: Callable[..., NodePeer], open_queue: Open, prefix: str
) -> None:
    five, six = (node(alias, prefix=prefix) for alias in ("bullmq-5.81.5", "bullmq-6.7.0"))
    five.call("add", queue="q", jobs=[job(), job()])
    five.call("pause", queue="q")
    five.call("add", queue="q", jobs=[job()])
    six.call("add", queue="q", jobs=[job(), job()])
    ours = open_queue()
    assert (ours.counts()["paused"], ours.counts()["wait"]) == (3, 2)
    ours.resume()
    five.call("process", queue="q")
    done = five.wait_for_events("completed", 5, source="worker")
    assert [event["jobId"] for event in done] == ["1", "2", "3", "4", "5"]


@each_peer_of("bull-1", "bull", "bullmq")
def test_a_guard_stops_node_workers_until_somebody_takes_over_its_pause(
    theirs: NodePeer, queue: BullQueue, redis_url: str, prefix: str, peer: Peer
) -> None:
    guard = Guard(queue.name, "failedRate > 0.5 over 2m", resume_after_s=3_600, min_jobs=3)
    # The Promoter finds the dialect of a queue that exists.
    queue.add({"$behaviour": "return:1"})
    theirs.call("process", queue=queue.name, concurrency=1)
    wait_until(lambda: queue.counts()["completed"] == 1, "Node to process a job")
    with Promoter(redis_url, [queue.name], prefix=prefix, protocol=peer.dialect, guards=guard) as promoter:
        wait_until(lambda: queue.handle.connection.call("EXISTS", queue.handle.keys.guard(guard.id)), "a look")
        queue.add_many(NewJob({"$behaviour": "fail"}) for _ in range(3))
        wait_until(lambda: promoter.done.paused == 1, "the guard to pause the queue")
        assert describe(queue.handle).pause_reason
        theirs.call("pause", queue=queue.name)
        assert queue.is_paused()
        assert describe(queue.handle).pause_reason is None, "the pause is not the guard's any more"
        queue.add({"$behaviour": "return:1"})
        theirs.call("resume", queue=queue.name)
        wait_until(lambda: queue.counts()["completed"] == 2, "Node to go on")


def named(name: str, **opts: Any) -> dict[str, Any]:
    return {**job(**opts), "name": name}


def orphans_of(queue: BullQueue) -> Finding:
    return next(finding for finding in leftovers([queue.handle], removes=True) if finding.check == "orphans")


def test_node_and_the_doctor_remove_the_same_jobs(
    node: Callable[..., NodePeer], client: Redis, open_queue: Open, prefix: str
) -> None:
    peer = node("bullmq-6.7.0", prefix=prefix)
    child = {"name": "child", "queueName": "mail", "data": {}}
    peer.call("add", queue="mail", jobs=[named("plain", jobId=f"job-{n}") for n in range(4)])
    peer.call("add", queue="mail", jobs=[named("late", delay=HOUR), named("first", priority=3)])
    peer.call("add", queue="mail", jobs=[named("once", deduplication={"id": "twin"}, jobId="lost")])
    peer.call("process", queue="mail")
    queue = open_queue("mail")
    wait_until(lambda: queue.counts()["completed"] == 6, "the jobs to complete")
    peer.call("stop", queue="mail")
    peer.call("flow", flow={"name": "parent", "queueName": "mail", "data": {}, "children": [child, child]})
    peer.call("add", queue="mail", jobs=[named("once", deduplication={"id": "twin"}, jobId="alone")])
    queue.upsert_scheduler("yearly", pattern="0 0 1 1 *")
    assert orphans_of(queue).level == "ok"
    client.lrem(queue.handle.keys["wait"], 1, "alone")
    client.zrem(queue.handle.keys["completed"], "job-2")
    client.rpush(queue.handle.keys.logs("job-2"), "a row")
    found = orphans_of(queue)
    assert found.found.endswith("2 jobs, alone, job-2")
    assert found.repair.run() == "removed 2 jobs"
    assert client.get(queue.handle.keys.deduplication("twin")) is None
    assert peer.call("invoke", queue="mail", method="removeOrphanedJobs") == 0
    assert client.exists(queue.handle.keys.job("job-2"), queue.handle.keys.logs("job-2")) == 0
    peer.call("process", queue="mail")
    wait_until(lambda: queue.counts()["completed"] == 5 + 3, "the flow to complete")
