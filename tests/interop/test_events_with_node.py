"""Events: ours of Node's jobs and workers, and Node's of ours; waiting for the ends of jobs."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from redis import Redis

from spark_bull.core.errors import JobFailed
from spark_bull.core.model.queues import QueueEvent
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.events import waiting
from spark_bull.core.queue.events.events import QueueEvents
from tests.support.jobs import job
from tests.support.node import Event, NodePeer, Peer, each_peer_of
from tests.support.wait import PATIENCE_S, wait_until
from tests.support.worker import OurWorker

pytestmark = pytest.mark.interop

#: Bull 1.0 publishes no events.
each_peer = each_peer_of("bull-1.1.3", "bull", "bullmq")


JOBS = [job('progress:{"part":1};return:{"ok":[1]}'), job("fail")]


def until_ended(events: QueueEvents, job_ids: list[str]) -> list[QueueEvent]:
    """The events up to the last end of these jobs."""
    seen, missing = [], set(job_ids)
    for event in events:
        seen.append(event)
        if event.event in ("completed", "failed"):
            missing -= {event.job_id}
        if not missing:
            return seen
    raise AssertionError(f"no end of {missing}; got {seen}")


def shown(seen: list[QueueEvent], job_ids: list[str]) -> list[tuple[object, ...]]:
    """What the events say, without what differs from run to run. Bull 1 often publishes an error without message."""
    return sorted(
        (job_ids.index(event.job_id), event.event, event.prev, str(event.data), str(event.returnvalue), event.run_at)
        for event in seen
        if event.job_id
    )


Open = Callable[..., BullQueue]


@each_peer
def test_events_of_a_node_worker_and_of_ours_are_the_same(peer: Peer, theirs: NodePeer, open_queue: Open) -> None:
    by_worker = {}
    for name in ("theirs", "ours"):
        queue = open_queue(name, peer.dialect)
        with queue.events(timeout_s=PATIENCE_S) as events:
            job_ids = theirs.call("add", queue=name, jobs=JOBS)
            if name == "theirs":
                theirs.call("process", queue=name, concurrency=1)
                seen = until_ended(events, job_ids)
                theirs.call("stop", queue=name)
            else:
                with OurWorker(queue.handle):
                    seen = until_ended(events, job_ids)
            by_worker[name] = shown(seen, job_ids)
            by_kind = {event.event: event for event in seen}
            assert {event.queue for event in seen} == {name}
            assert by_kind["progress"].data == {"part": 1}
            assert by_kind["completed"].returnvalue == {"ok": [1]}
            assert by_kind["failed"].job_id == job_ids[1]
            assert by_kind["failed"].failed_reason in ("scripted failure 1", None)
            assert peer.dialect == "bull-1" or by_kind["failed"].failed_reason
            assert (by_kind["completed"].id is not None) == queue.handle.dialect.has("event-stream")
    assert by_worker["theirs"] == by_worker["ours"]


def is_heard(client: Redis, queue: BullQueue) -> bool:
    """Whether a listener of Node gets the next events.

    BullMQ's does when it waits for its stream, Bull 1's when it has subscribed, Bull's as soon as it is called.
    """
    if queue.protocol == "bullmq":
        reader = f"{queue.handle.keys.client_name}:qe"
        return any(one["name"] == reader and "b" in one["flags"] for one in client.client_list())
    return queue.protocol == "bull" or any(count for _, count in client.pubsub_numsub(f"completed@{queue.name}"))


@each_peer
def test_node_waits_for_jobs_whose_other_events_are_left_out(
    peer: Peer, theirs: NodePeer, client: Redis, open_queue: Open, prefix: str
) -> None:
    # Bull 1 publishes outside the prefix.
    name = f"heard-{prefix}"
    queue = open_queue(name, peer.dialect, events="ends")
    with ThreadPoolExecutor(1) as pool:
        theirs.call("listen", queue=name)
        wait_until(lambda: is_heard(client, queue), "Node to listen")
        job_id = queue.add({"$behaviour": 'return:{"ok":[1]}'}, name=None if peer.dialect == "bull-1" else "task")
        end = pool.submit(theirs.call, "waitForEnd", queue=name, jobId=job_id)
        with OurWorker(queue.handle):
            # In Bull 1 the promise has no value.
            assert end.result(PATIENCE_S) == (None if peer.dialect == "bull-1" else {"ok": [1]})
        theirs.wait_for_events("completed", 1, source="queue")
        assert {event["event"] for event in theirs.events(source="queue")} - {"drained"} == {"completed"}


@each_peer_of("bull-1", "bull", "bullmq")
def test_a_call_that_waits_gets_what_a_node_worker_returns(
    peer: Peer, theirs: NodePeer, queue: BullQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Bull 1.0 publishes no events.
    monkeypatch.setattr(waiting, "LOOK_AGAIN_S", 0.1 if peer.alias == "bull-1.0.0" else 2 * PATIENCE_S)
    with ThreadPoolExecutor(2) as pool:
        done, failed = theirs.call("add", queue="q", jobs=[job('return:{"ok":[1]}'), job("fail")])
        ends = [pool.submit(queue.wait, job_id, PATIENCE_S) for job_id in (done, failed)]
        theirs.call("process", queue="q", concurrency=1)
        assert ends[0].result() == {"ok": [1]}
        with pytest.raises(JobFailed) as error:
            ends[1].result()
        assert error.value.reason == ("scripted failure 1" if peer.alias != "bull-1.0.0" else None)


@each_peer_of("bullmq")
def test_node_gets_events_of_our_programs_and_we_those_of_node_programs(theirs: NodePeer, queue: BullQueue) -> None:
    with queue.events(timeout_s=PATIENCE_S) as events:
        theirs.call("listen", queue="q", events=["opened", "closed"])

        def heard() -> list[Event]:
            # Node's QueueEvents says that it is ready before it reads.
            queue.publish("opened", {"jobId": "7", "by": "Ada"})
            return theirs.events("opened")

        opened = wait_until(heard, "Node to get the event")[0]
        assert (opened["jobId"], opened["by"]) == ("7", "Ada")
        theirs.call("publish", queue="q", event={"eventName": "closed", "jobId": "8", "by": "Alan"})
        closed = next(event for event in events if event.event == "closed")
        assert (closed.job_id, closed.fields) == ("8", {"by": "Alan"})
