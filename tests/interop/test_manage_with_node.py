"""Node manages one queue, we manage another: afterwards both have the same keys, and Node workers continue with both.

Node fills and processes both queues, so that they are equal before. Left is Node, right is ours.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pytest
from redis import Redis

from spark_bull.model.jobs import Change, Changed, NewJob
from spark_bull.queue.bull_queue import BullQueue
from spark_bull.queue.dispatch.lost_writes import KnownWrites
from spark_bull.queue.dispatch.writes import roll_forward
from tests.support.dump import Dump, Key, Window, difference, dump, normalise, normalise_messages
from tests.support.jobs import HOUR
from tests.support.node_peer import NodePeer
from tests.support.peers import PEERS, Peer
from tests.support.pubsub import published
from tests.support.wait import wait_until
from tests.support.writes import register_all

pytestmark = pytest.mark.interop

SHOWN = 20
STARTED = time.time_ns() // 1_000_000


def peers(*dialects: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("peer", [peer for peer in PEERS if peer.dialect in dialects], ids=str)


each_peer = peers("bull-1", "bull", "bullmq")


def job(n: int, behaviour: str = "", **opts: Any) -> dict[str, Any]:
    data = {"n": n} | ({"$behaviour": behaviour} if behaviour else {})
    return {"name": "x", "data": data, "opts": opts}


def later(n: int, **opts: Any) -> dict[str, Any]:
    """A delayed job, due at the same time in both queues."""
    return job(n, delay=HOUR, timestamp=STARTED, **opts)


@dataclass
class Pair:
    """Two queues that Node has filled alike, and the messages published during an operation on each."""

    peer: Peer
    node: NodePeer
    client: Redis
    url: str
    prefix: str
    window: Window = field(default_factory=Window)
    heard: dict[str, list[tuple[str, str]]] = field(default_factory=dict)

    def name(self, side: str, queue: str = "q") -> str:
        # Bull 1 publishes outside the prefix, so the name of the queue must be unique.
        return f"{side}-{queue}-{self.prefix}"

    def both(self, cmd: str, **arguments: Any) -> None:
        for side in ("left", "right"):
            self.node.call(cmd, queue=self.name(side), **arguments)

    def work(self, jobs: list[dict[str, Any]], *, failures: int = 0) -> None:
        """Lets a Node worker process these jobs one after the other."""
        self.both("add", jobs=jobs)
        for side in ("left", "right"):
            queue = self.name(side)
            self.node.call("process", queue=queue)
            self.node.wait_for_events("completed", len(jobs) - failures, source="worker", queue=queue)
            self.node.wait_for_events("failed", failures, source="worker", queue=queue)
            self.stop(side)

    def stop(self, side: str) -> None:
        self.node.call("stop", queue=self.name(side))
        # How often a worker claimed before it stopped is random.
        self.client.delete(f"{self.prefix}:{self.name(side)}:marker")

    def manage(self, theirs: str, ours: Callable[[BullQueue], Any], **arguments: Any) -> tuple[Any, Any]:
        """Runs Node's command on the left queue and our operation on the right one; returns both results."""
        with published(self.client, self.prefix, self.name("left")) as heard:
            left = self.node.call(theirs, queue=self.name("left"), **arguments)
        self.heard["left"] = heard
        with published(self.client, self.prefix, self.name("right")) as heard, self.ours() as queue:
            right = ours(queue)
        self.heard["right"] = heard
        return left, right

    def ours(self, queue: str = "q") -> closing[BullQueue]:
        options = {"url": self.url, "prefix": self.prefix, "protocol": self.peer.dialect}
        return closing(BullQueue(self.name("right", queue), **options))

    def dump(self, side: str, queue: str = "q") -> Dump:
        raw = dump(self.client, self.prefix, self.name(side, queue))
        # The time of a worker's last check for stalled jobs.
        raw.pop("stalled-check", None)
        return raw

    def assert_alike(self, known: tuple[str, ...] = (), queue: str = "q") -> None:
        left, right = (self.dump(side, queue) for side in ("left", "right"))
        found = difference(*(normalise(as_left(raw), self.window) for raw in (left, right)))
        if self.heard:
            said = (self._said("left", left), self._said("right", right))
            found += [f"published{sentence}" for sentence in difference(*said)]
        unknown = [sentence for sentence in found if not sentence.startswith(known)] if known else found
        if unknown:
            pytest.fail("\n".join(unknown[:SHOWN]), pytrace=False)

    def _said(self, side: str, raw: Dump) -> list[tuple[str, Any]]:
        return normalise_messages(self.heard[side], self.prefix, raw, self.window)


def as_left(value: Any) -> Any:
    """Replaces names of right queues, which are part of flows, by those of left ones."""
    match value:
        case str():
            return value.replace(":right-", ":left-")
        case dict():
            return {as_left(name): as_left(item) for name, item in value.items()}
        case list() | tuple():
            return type(value)(as_left(item) for item in value)
        case Key():
            return Key(value.type, value.expires, as_left(value.value))
        case _:
            return value


@pytest.fixture
def pair(peer: Peer, node: Callable[..., NodePeer], client: Redis, redis_url: str, prefix: str) -> Pair:
    return Pair(peer, node(peer.alias, prefix=prefix), client, redis_url, prefix)


@each_peer
def test_pause_and_resume_leave_the_same_keys_as_node(pair: Pair) -> None:
    pair.both("add", jobs=[job(n) for n in range(4)])
    pair.manage("pause", BullQueue.pause)
    pair.assert_alike()
    pair.both("add", jobs=[job(n) for n in range(2)])
    pair.manage("resume", BullQueue.resume)
    pair.assert_alike()
    with pair.ours() as queue:
        assert not queue.is_paused()


@each_peer
def test_retry_leaves_the_same_keys_as_node(pair: Pair) -> None:
    # Bull 1.1 pushes every job to the end that the first one asked for.
    lifo = {} if pair.peer.alias == "bull-1.1.3" else {"lifo": True}
    pair.work([job(0), job(1, "fail", **lifo), job(2, "fail")], failures=2)
    pair.both("add", jobs=[job(3)])
    for job_id in ("2", "3"):
        pair.manage("retry", lambda queue, job_id=job_id: queue.retry(job_id), jobId=job_id)
        pair.assert_alike()


@peers("bull", "bullmq")
def test_retry_in_a_paused_queue_leaves_the_same_keys_as_node(pair: Pair) -> None:
    pair.work([job(0, "fail")], failures=1)
    pair.both("pause")
    pair.manage("retry", lambda queue: queue.retry("1"), jobId="1")
    known = ("paused: only right has", "wait: only left has") if pair.peer.alias == "bull-3.29.3" else ()
    pair.assert_alike(known)


@peers("bullmq")
def test_retry_of_completed_and_prioritised_jobs_leaves_the_same_keys_as_node(pair: Pair) -> None:
    pair.work([job(0), job(1, "fail", priority=3)], failures=1)
    arguments = {"method": "retry", "args": ["completed"]}
    pair.manage("invoke", lambda queue: queue.retry("1", state="completed"), jobId="1", **arguments)
    pair.assert_alike()
    pair.manage("retry", lambda queue: queue.retry("2"), jobId="2")
    pair.assert_alike()


@each_peer
def test_promote_leaves_the_same_keys_as_node(pair: Pair) -> None:
    priorities = [{}] if pair.peer.dialect == "bull-1" else [{}, {"priority": 3}, {"priority": 1}, {"priority": 2}]
    pair.both("add", jobs=[job(n, **opts) for n, opts in enumerate(priorities * 2)])
    pair.both("add", jobs=[later(n, **opts) for n, opts in enumerate(priorities)])
    for n in range(len(priorities)):
        job_id = str(2 * len(priorities) + n + 1)
        pair.manage("promote", lambda queue, job_id=job_id: queue.promote(job_id), jobId=job_id)
        pair.assert_alike()


@each_peer
def test_remove_leaves_the_same_keys_as_node(pair: Pair) -> None:
    log = "" if pair.peer.dialect == "bull-1" else "log:a row;"
    pair.work([job(0, f"{log}return:1"), job(1, f"{log}fail")], failures=1)
    pair.both("add", jobs=[job(2), later(3), job(4)])
    if pair.peer.dialect != "bull-1":
        pair.both("add", jobs=[job(5, priority=2)])
    for job_id in "12346"[: 5 if pair.peer.dialect != "bull-1" else 4]:
        pair.manage("remove", lambda queue, job_id=job_id: queue.remove(job_id), jobId=job_id)
        pair.assert_alike()


@each_peer
@pytest.mark.parametrize("state", ["completed", "failed", "wait", "delayed"])
def test_clean_leaves_the_same_keys_as_node(pair: Pair, state: str) -> None:
    pair.work([job(0), job(1, "fail"), job(2)], failures=1)
    pair.both("add", jobs=[job(3), later(4), job(5)])
    left, right = pair.manage("clean", lambda queue: queue.clean(0, state=state), state=state)
    assert sorted(map(str, left)) == sorted(right) != []
    # Bull 1.0 publishes nothing, 1.1 lists the newest id first.
    pair.assert_alike(("published",) if pair.peer.dialect == "bull-1" else ())


@each_peer
def test_clean_with_grace_and_limit_removes_the_same_jobs_as_node(pair: Pair) -> None:
    pair.work([job(n) for n in range(4)])
    left, right = pair.manage("clean", lambda queue: queue.clean(HOUR), grace=HOUR)
    assert left == right == []
    left, right = pair.manage("clean", lambda queue: queue.clean(0, 3), limit=3)
    assert len(left) == len(right) == 3
    if pair.peer.dialect != "bull-1":
        assert left == right == ["1", "2", "3"]
        pair.assert_alike()


@peers("bullmq")
@pytest.mark.parametrize("delayed", [False, True])
def test_drain_leaves_the_same_keys_as_node(pair: Pair, delayed: bool) -> None:
    pair.work([job(0), job(1, "fail")], failures=1)
    pair.both("add", jobs=[job(2), later(3), job(4, priority=3), job(5)])
    pair.manage("empty", lambda queue: queue.drain(delayed=delayed), delayed=delayed)
    pair.assert_alike()


@peers("bull-1", "bull")
def test_drain_leaves_the_same_keys_as_empty_of_bull(pair: Pair) -> None:
    pair.work([job(0), job(1, "fail")], failures=1)
    pair.both("add", jobs=[job(2), later(3), job(5)])
    pair.manage("empty", lambda queue: queue.drain(delayed=True))
    # Bull removes the id of the delayed job, but not its hash.
    pair.assert_alike(("4: only left has",))


@peers("bull", "bullmq")
def test_obliterate_leaves_the_same_keys_as_node(pair: Pair) -> None:
    pair.work([job(0), job(1, "fail")], failures=1)
    pair.both("add", jobs=[job(2), later(3), job(4, priority=3), job(5)])
    pair.manage("obliterate", BullQueue.obliterate)
    pair.assert_alike()
    assert normalise(pair.dump("right"), pair.window) == {}


@peers("bull", "bullmq")
def test_obliterate_of_node_is_no_loss_of_our_writes(pair: Pair) -> None:
    known = KnownWrites()
    with pair.ours() as ours:
        register_all(ours.handle, "write", [[NewJob({"n": n}) for n in range(3)]])
        roll_forward(ours.handle, "write")
        assert known.lost([ours.handle]) == []
        pair.node.call("obliterate", queue=pair.name("right"))
        assert sum(ours.counts().values()) == 0
        assert known.lost([ours.handle]) == []


# changes of many jobs


def change(pair: Pair, theirs: str, change: Change, *args: Any, known: tuple[str, ...] = ()) -> None:
    """Changes a job by a method of Node's job, and by our changes of many jobs."""

    def ours(queue: BullQueue) -> None:
        assert list(queue.manage([change])) == [Changed(change.id, change.action, "done")]

    pair.manage("invoke", ours, jobId=change.id, method=theirs, args=list(args))
    pair.assert_alike(known)


@each_peer
def test_changes_that_every_node_package_has_leave_the_same_keys(pair: Pair) -> None:
    pair.work([job(0), job(1, "fail"), job(2, "fail")], failures=2)
    pair.both("add", jobs=[job(3), later(4), later(5), job(6)])
    change(pair, "retry", Change("2", "retry"))
    change(pair, "promote", Change("5", "promote"))
    for job_id in ("1", "3", "4", "6"):
        change(pair, "remove", Change(job_id, "remove"))


@peers("bull", "bullmq")
def test_updates_leave_the_same_keys_as_node(pair: Pair) -> None:
    pair.both("add", jobs=[job(0), later(1)])
    method = "updateData" if pair.peer.dialect == "bullmq" else "update"
    for job_id in ("1", "2"):
        change(pair, method, Change(job_id, "update", data={"n": "ä"}), {"n": "ä"})


@peers("bullmq")
def test_changed_delays_leave_the_same_keys_as_node(pair: Pair) -> None:
    pair.both("add", jobs=[later(0), later(1)])
    change(pair, "changeDelay", Change("1", "delay", delay=0), 0)
    begun = time.time_ns() // 1_000_000
    # Both count from their own now.
    change(pair, "changeDelay", Change("2", "delay", delay=2 * HOUR), 2 * HOUR, known=("delayed[", "events["))
    due = [pair.dump(side)["delayed"].value[-1][1] // 4096 for side in ("left", "right")]
    assert all(begun <= moment - 2 * HOUR <= time.time_ns() // 1_000_000 + 1_000 for moment in due)


@each_peer
def test_node_promotes_a_waiting_job_that_we_have_delayed(pair: Pair) -> None:
    """Afterwards it is as if it had never been delayed: left, nothing was done with it."""
    pair.both("add", jobs=[job(0), job(1), job(2)])
    queue = pair.name("right")
    with pair.ours() as ours:
        ours.change_delay("3", HOUR)
    assert pair.node.call("state", queue=queue, jobId="3") == "delayed"
    pair.node.call("promote", queue=queue, jobId="3")
    # BullMQ leaves the time of the first delayed job in the marker; Bull 1 keeps the delay of a job that was promoted.
    pair.assert_alike(("events", "marker") if pair.peer.dialect == "bullmq" else ("3.delay",))
    with pair.ours() as ours:
        ours.change_delay("2", 1)
    pair.node.call("process", queue=queue)
    pair.node.wait_for_events("completed", 3, source="worker", queue=queue)
    pair.node.call("stop", queue=queue)


@peers("bullmq")
@pytest.mark.parametrize("keep", [0, 2])
def test_a_cleared_log_leaves_the_same_keys_as_node(pair: Pair, keep: int) -> None:
    pair.work([job(0, "log:a;log:b;log:c")])
    pair.manage(
        "invoke", lambda queue: queue.clear_logs("1", keep), jobId="1", method="clearLogs", args=[keep] if keep else []
    )
    pair.assert_alike()
    with pair.ours() as queue:
        assert queue.logs("1") == ["b", "c"][:keep]


@peers("bullmq")
@pytest.mark.parametrize("kept", [0, 150])
def test_trimmed_events_leave_the_same_keys_as_node(pair: Pair, kept: int) -> None:
    pair.both("add", jobs=[job(n) for n in range(400)])
    theirs, ours = pair.manage("invoke", lambda queue: queue.trim_events(kept), method="trimEvents", args=[kept])
    assert theirs == ours > 0
    pair.assert_alike()


@peers("bullmq")
def test_a_queue_is_maxed_when_node_says_so(pair: Pair) -> None:
    pair.both("add", jobs=[job(n, "hang") for n in range(3)])
    queue = pair.name("right")
    with pair.ours() as ours:

        def both(expected: bool) -> None:
            assert ours.is_maxed() is expected
            assert pair.node.call("invoke", queue=queue, method="isMaxed") is expected

        both(False)
        ours.set_limits(concurrency=2)
        both(False)
        pair.node.call("process", queue=queue, concurrency=3)
        wait_until(lambda: ours.counts()["active"] == 2, "two jobs to start")
        both(True)
        ours.set_limits(concurrency=3)
        wait_until(lambda: ours.counts()["active"] == 3, "the third job to start")
        both(True)
        ours.remove_limits()
        both(False)
    pair.node.call("stop", queue=queue, force=True)


@peers("bullmq")
def test_orphaned_jobs_that_we_remove_leave_the_same_keys_as_node(pair: Pair) -> None:
    pair.both("add", jobs=[job(n) for n in range(4)])
    for side in ("left", "right"):
        base = f"{pair.prefix}:{pair.name(side)}:"
        pair.client.lrem(f"{base}wait", 1, "2")
        pair.client.lrem(f"{base}wait", 1, "3")
        pair.client.rpush(f"{base}2:logs", "a row")
    assert pair.manage("invoke", BullQueue.remove_orphans, method="removeOrphanedJobs") == (2, 2)
    pair.assert_alike()


@peers("bullmq")
@pytest.mark.parametrize("lifo", [False, True])
@pytest.mark.parametrize("paused", [False, True])
def test_changed_priorities_leave_the_same_keys_as_node(pair: Pair, lifo: bool, paused: bool) -> None:
    pair.both("add", jobs=[job(0), job(1), job(2, priority=3), job(3, priority=3), later(4)])
    if paused:
        pair.both("pause")
    for job_id, priority in (("1", 2), ("2", 0), ("4", 3), ("3", 0), ("1", 3), ("5", 4)):
        wanted = Change(job_id, "prioritize", priority=priority, lifo=lifo)
        change(pair, "changePriority", wanted, {"priority": priority, "lifo": lifo})


@peers("bullmq")
@pytest.mark.parametrize("priority", [0, 3])
def test_retries_that_count_from_0_leave_the_same_keys_as_node(pair: Pair, priority: int) -> None:
    pair.work([job(0), job(1, "fail", priority=priority)], failures=1)
    resets = {"resetAttemptsMade": True, "resetAttemptsStarted": True}
    change(pair, "retry", Change("2", "retry", reset_attempts=True), "failed", resets)
    change(pair, "retry", Change("1", "retry", state="completed", reset_attempts=True), "completed", resets)


@peers("bullmq")
def test_freed_deduplication_ids_leave_the_same_keys_as_node(pair: Pair) -> None:
    pair.both("add", jobs=[job(0, deduplication={"id": "d"})])
    change(pair, "removeDeduplicationKey", Change("1", "free"))


@peers("bullmq")
def test_discarded_children_leave_the_same_keys_as_node(pair: Pair) -> None:
    add_flow(pair, {}, {"opts": {"jobId": "c1", "delay": HOUR, "timestamp": STARTED}})
    pair.manage(
        "invoke",
        lambda queue: list(queue.manage([Change("p", "discard-children")])),
        jobId="p",
        method="removeUnprocessedChildren",
    )
    # The order of children is random.
    pair.assert_alike(("events",))
    assert pair.dump("right")["wait"].value == ["p"]


@each_peer
@pytest.mark.parametrize("does", ["complete", "give up"])
def test_jobs_that_we_end_unclaimed_are_as_those_that_a_node_worker_ends(pair: Pair, does: str) -> None:
    if pair.peer.dialect == "bull-1":
        pytest.skip("its workers are not run by hand")
    pair.both("add", jobs=[job(0), later(1)])
    (claimed,) = pair.node.call("claim", queue=pair.name("left"), count=1, token="t")
    outcome = {"jobId": claimed["id"], "token": "t", "does": does, "value": "7" if does == "complete" else "bad"}
    pair.node.call("settle", queue=pair.name("left"), outcomes=[outcome])
    with pair.ours() as ours:
        ours.complete("1", "7") if does == "complete" else ours.fail("1", "bad")
    # No worker has claimed it, and no exception has a trace.
    unclaimed = ("processedOn", "ats", "pb", "stacktrace", "attemptsMade", "finishedOn")
    pair.assert_alike((*(f"1.{field}" for field in unclaimed), "events", "marker", "stalled", "meta", "limiter"))
    state = "completed" if does == "complete" else "failed"
    assert [job_id for job_id, _ in pair.dump("right")[state].value] == ["1"]


# flows


def add_flow(pair: Pair, *children: dict[str, Any], queue: str = "q", **opts: Any) -> None:
    """A parent `p` whose children are in a queue."""
    for side in ("left", "right"):
        for opened in {"q", queue}:
            pair.node.call("counts", queue=pair.name(side, opened))
        nodes = [
            {"name": "c", "queueName": pair.name(side, queue), "data": {}, "opts": {"jobId": f"c{n}"}, **child}
            for n, child in enumerate(children)
        ]
        flow = {
            "name": "p",
            "queueName": pair.name(side),
            "data": {},
            "opts": {"jobId": "p", **opts},
            "children": nodes,
        }
        pair.node.call("flow", flow=flow)


@peers("bullmq")
@pytest.mark.parametrize("queue", ["q", "children"])
def test_removing_children_leaves_the_same_keys_as_node(pair: Pair, queue: str) -> None:
    add_flow(pair, {}, {}, queue=queue)
    for child in ("c0", "c1"):
        with pair.ours(queue) as ours:
            pair.node.call("remove", queue=pair.name("left", queue), jobId=child)
            ours.remove(child)
        pair.assert_alike(queue=queue)
        pair.assert_alike()
    assert pair.dump("right")["wait"].value == ["p"]


@peers("bullmq")
def test_removing_a_parent_leaves_the_same_keys_as_node(pair: Pair) -> None:
    add_flow(pair, {}, {"data": {"n": 1}})
    pair.manage("remove", lambda queue: queue.remove("p"), jobId="p")
    # Node moves the parent to wait for a moment when its last child is removed. The order of children is random.
    pair.assert_alike(("events", "marker"))
    assert not {"p", "c0", "c1"} & pair.dump("right").keys()


@peers("bullmq")
@pytest.mark.parametrize("behaviour", ["fail", "return:1"])
def test_retrying_a_child_leaves_the_same_keys_as_node(pair: Pair, behaviour: str) -> None:
    opts = {"jobId": "c0", "ignoreDependencyOnFailure": True}
    add_flow(
        pair,
        {"data": {"$behaviour": behaviour}, "opts": opts},
        {"opts": {"jobId": "c1", "delay": HOUR, "timestamp": STARTED}},
    )
    event, state = ("failed", "failed") if behaviour == "fail" else ("completed", "completed")
    for side in ("left", "right"):
        pair.node.call("process", queue=pair.name(side))
        pair.node.wait_for_events(event, 1, source="worker", queue=pair.name(side))
        pair.stop(side)
    arguments = {"method": "retry", "args": [state]}
    pair.manage("invoke", lambda queue: queue.retry("c0", state=state), jobId="c0", **arguments)
    pair.assert_alike()
    assert len(pair.dump("right")["p:dependencies"].value) == 2


@peers("bullmq")
@pytest.mark.parametrize("queue", ["q", "children"])
@pytest.mark.parametrize("verb", ["clean", "empty", "obliterate"])
def test_removing_all_children_leaves_the_same_keys_as_node(pair: Pair, verb: str, queue: str) -> None:
    add_flow(pair, {}, {}, queue=queue)
    arguments = {"state": "wait"} if verb == "clean" else {}
    pair.node.call(verb, queue=pair.name("left", queue), **arguments)
    with pair.ours(queue) as ours:
        match verb:
            case "clean":
                ours.clean(0, state="wait")
            case "empty":
                ours.drain()
            case _:
                ours.obliterate()
    pair.assert_alike(queue=queue)
    pair.assert_alike()
    assert ("p" in pair.dump("right")) == (queue != "q")


# Node workers while we manage


@each_peer
def test_a_node_worker_respects_our_pause_and_resume(pair: Pair) -> None:
    queue = pair.name("right")
    pair.node.call("process", queue=queue)
    pair.node.call("add", queue=queue, jobs=[job(0)])
    pair.node.wait_for_events("completed", 1, source="worker", queue=queue)
    with pair.ours() as ours:
        ours.pause()
        pair.node.call("add", queue=queue, jobs=[job(1)])
        ours.add({"n": 2})
        # If it had not stopped, these jobs would complete before that of a new queue.
        pair.node.call("process", queue=pair.name("other"))
        pair.node.call("add", queue=pair.name("other"), jobs=[job(3)])
        pair.node.wait_for_events("completed", 1, source="worker", queue=pair.name("other"))
        assert len(pair.node.events("completed", source="worker", queue=queue)) == 1
        ours.resume()
    pair.node.wait_for_events("completed", 3, source="worker", queue=queue)
    pair.node.call("stop", queue=queue)


@each_peer
def test_an_idle_node_worker_wakes_for_jobs_that_we_retry_or_promote(pair: Pair) -> None:
    queue = pair.name("right")
    pair.node.call("process", queue=queue)
    delayed = later(1)
    pair.node.call("add", queue=queue, jobs=[job(0, "fail" if pair.peer.dialect == "bull-1" else "fail:1"), delayed])
    pair.node.wait_for_events("failed", 1, source="worker", queue=queue)
    with pair.ours() as ours:
        ours.promote("2")
        pair.node.wait_for_events("completed", 1, source="worker", queue=queue)
        ours.retry("1")
    if pair.peer.dialect == "bull-1":
        pair.node.wait_for_events("failed", 2, source="worker", queue=queue)
    else:
        pair.node.wait_for_events("completed", 2, source="worker", queue=queue)
    pair.node.call("stop", queue=queue)


def test_no_job_is_lost_when_both_versions_of_bullmq_paused(
    node: Callable[..., NodePeer], redis_url: str, prefix: str
) -> None:
    five, six = (node(alias, prefix=prefix) for alias in ("bullmq-5.81.5", "bullmq-6.7.0"))
    five.call("add", queue="q", jobs=[job(0), job(1)])
    five.call("pause", queue="q")
    five.call("add", queue="q", jobs=[job(2)])
    six.call("add", queue="q", jobs=[job(3), job(4)])
    with closing(BullQueue("q", url=redis_url, prefix=prefix, protocol="bullmq")) as ours:
        assert (ours.counts()["paused"], ours.counts()["wait"]) == (3, 2)
        ours.resume()
    five.call("process", queue="q")
    done = five.wait_for_events("completed", 5, source="worker")
    assert [event["jobId"] for event in done] == ["1", "2", "3", "4", "5"]
    five.call("stop", queue="q")
