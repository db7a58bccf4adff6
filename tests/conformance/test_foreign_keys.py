"""Queues of older libraries, and keys that are not ours: no job is lost, and other queues are not disturbed."""

from __future__ import annotations

from collections.abc import Callable

from redis import Redis

from spark_bull import BullQueue
from tests.support.node_peer import NodePeer

StartNode = Callable[..., NodePeer]
BULLMQ_5 = "bullmq-5.81.5"


def test_resume_of_a_bullmq_that_writes_no_version_loses_no_job(
    node: StartNode, client: Redis, redis_url: str, prefix: str
) -> None:
    """BullMQ up to 5.19, and its Python package 2, resume as BullMQ 5: they rename `paused` over `wait`."""
    peer = node(BULLMQ_5, prefix=prefix)
    peer.call("add", queue="q", jobs=[{"name": "first", "data": {}}])
    client.hdel(f"{prefix}:q:meta", "version")
    with BullQueue("q", url=redis_url, prefix=prefix) as queue:
        peer.call("pause", queue="q")
        ids = [queue.add({"n": number}) for number in range(10)]
        peer.call("resume", queue="q")
        assert sorted(job.id for job in queue.page("wait")) == sorted(["1", *ids])
