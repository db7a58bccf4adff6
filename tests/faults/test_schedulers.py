"""Workers that are killed while they continue job schedulers: none is lost, and none has two next jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from spark_bull import BullQueue, Promoter
from tests.faults.programs import dies_at
from tests.support.forked_programs import work
from tests.support.node import NodePeer, Peer, each_peer_of
from tests.support.wait import wait_until
from tests.support.worker import OurWorker, behave

HOUR = 3_600_000
SCHEDULES = 20
CHECK_MS = 200
#: The jobs of a worker are stalled soon after it has died.
WORK = {"chunk_size": 7, "lock_ms": 1_000}


@contextmanager
def our_worker(queue: BullQueue) -> Iterator[None]:
    handle = queue.handle
    promoter = Promoter(
        handle.connection.settings.url,
        [queue.name],
        prefix=handle.keys.prefix,
        protocol=queue.protocol,
        check_ms=CHECK_MS,
        max_stalled=5,
    )
    with promoter, OurWorker(handle):
        yield


@contextmanager
def node_worker(queue: BullQueue, node: NodePeer) -> Iterator[None]:
    stalled = {"stalledInterval": CHECK_MS, "maxStalledCount": 5}
    node.call("process", queue=queue.name, opts=stalled if queue.protocol == "bullmq" else {"settings": stalled})
    yield
    node.call("stop", queue=queue.name)


def assert_all_go_on(queue: BullQueue, survivor: Any) -> None:
    """A worker runs the current jobs; then each job scheduler has one next job."""
    with survivor:
        wait_until(
            lambda: queue.counts()["completed"] == SCHEDULES and queue.counts()["active"] == 0, "all current jobs"
        )
    following = [job.id.rpartition(":")[0] for job in queue.page("delayed")]
    assert len(following) == len(set(following)) == SCHEDULES
    assert sum(queue.counts().values()) == 2 * SCHEDULES


def let_wait(queue: BullQueue) -> None:
    for n in range(SCHEDULES):
        queue.upsert_scheduler(f"s{n}", every=HOUR)
    for job in queue.page("delayed"):
        queue.promote(job.id)


@pytest.mark.parametrize(("call", "when"), [(1, "after"), (2, "before"), (2, "after"), (4, "before")])
@pytest.mark.parametrize("queue", ["bull", "bullmq"], indirect=True)
def test_a_killed_worker_loses_no_scheduler(
    queue: BullQueue, redis_url: str, prefix: str, call: int, when: str
) -> None:
    """After its first call jobs are claimed, but their job schedulers have not advanced."""
    let_wait(queue)
    assert dies_at(call, when, work, redis_url, prefix, queue.protocol, behave, **WORK)
    assert_all_go_on(queue, our_worker(queue))


@each_peer_of("bull", "bullmq")
def test_node_continues_the_schedulers_of_a_killed_worker(
    redis_url: str, prefix: str, open_queue: Callable[..., BullQueue], node: Callable[..., NodePeer], peer: Peer
) -> None:
    queue = open_queue(protocol=peer.dialect)
    let_wait(queue)
    assert dies_at(1, "after", work, redis_url, prefix, peer.dialect, behave, **WORK)
    assert queue.counts()["active"] == 7
    assert queue.page("delayed") == []
    assert_all_go_on(queue, node_worker(queue, node(peer.alias, prefix=prefix)))
