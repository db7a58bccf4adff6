"""The pause of a guard is that of the Node library: its workers stop, and people who use it take over."""

from __future__ import annotations

import pytest

from spark_bull import BullQueue, Guard, NewJob, Promoter
from spark_bull.core.queue.monitor.find import describe
from tests.support.node import NodePeer, Peer, each_peer_of
from tests.support.wait import wait_until

pytestmark = pytest.mark.interop


@each_peer_of("bull-1", "bull", "bullmq")
def test_a_guard_stops_node_workers_until_its_pause_is_over_or_somebody_ends_it(
    theirs: NodePeer, redis_url: str, prefix: str, peer: Peer
) -> None:
    # Bull 1 publishes outside the prefix.
    name = f"guarded-{prefix}"
    guard = Guard(name, "failedRate > 0.5 over 1m", resume_after_s=1, min_jobs=3)
    longer = Guard(name, "failedRate > 0.5 over 2m", resume_after_s=3_600, min_jobs=3)

    with BullQueue(name, url=redis_url, prefix=prefix, protocol=peer.dialect) as queue:

        def fail_jobs(promoter: Promoter, rule: Guard) -> None:
            wait_until(lambda: queue.handle.connection.call("EXISTS", queue.handle.keys.guard(rule.id)), "a look")
            queue.add_many(NewJob({"$behaviour": "fail"}) for _ in range(3))
            wait_until(lambda: promoter.done.paused == 1, "the guard to pause the queue")

        # The Promoter finds the dialect of a queue that exists.
        queue.add({"$behaviour": "return:1"})
        theirs.call("process", queue=name, concurrency=1)
        wait_until(lambda: queue.counts()["completed"] == 1, "Node to process a job")
        with Promoter(redis_url, [name], prefix=prefix, protocol=peer.dialect, guards=guard) as promoter:
            fail_jobs(promoter, guard)
            queue.add({"$behaviour": "return:1"})
            wait_until(lambda: queue.counts()["completed"] == 2, "Node to go on")
            assert not queue.is_paused(), "Node has processed a job during the pause"
        with Promoter(redis_url, [name], prefix=prefix, protocol=peer.dialect, guards=longer) as promoter:
            fail_jobs(promoter, longer)
            assert describe(queue.handle).pause_reason
            theirs.call("pause", queue=name)
            assert queue.is_paused()
            assert describe(queue.handle).pause_reason is None, "the pause is not the guard's any more"
            theirs.call("resume", queue=name)
            queue.add({"$behaviour": "return:1"})
            wait_until(lambda: queue.counts()["completed"] == 3, "Node to go on")
