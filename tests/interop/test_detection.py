"""`protocol=auto` knows a queue that a real Node library made, whatever state its jobs are in."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_bull.bull_queue import BullQueue
from tests.support.jobs import HOUR
from tests.support.node_peer import NodePeer
from tests.support.peers import PEERS, Peer

each_peer = pytest.mark.parametrize("peer", PEERS, ids=str)


@pytest.fixture
def library(node: Callable[..., NodePeer], peer: Peer, prefix: str) -> NodePeer:
    return node(peer.alias, prefix=prefix)


@pytest.fixture
def detected(redis_url: str, prefix: str) -> Callable[[], str]:
    def detect() -> str:
        with BullQueue("q", url=redis_url, prefix=prefix) as queue:
            return queue.protocol

    return detect


def job(**opts: object) -> dict[str, object]:
    return {"name": "n", "data": {}, "opts": opts}


@each_peer
@pytest.mark.parametrize("opts", [{}, {"delay": HOUR}, {"lifo": True, "attempts": 3}], ids=str)
def test_a_queue_with_one_job(
    library: NodePeer, peer: Peer, detected: Callable[[], str], opts: dict[str, object]
) -> None:
    library.call("add", queue="q", jobs=[job(**opts)])
    assert detected() == peer.dialect


@each_peer
def test_a_paused_queue(library: NodePeer, peer: Peer, detected: Callable[[], str]) -> None:
    library.call("pause", queue="q")
    library.call("add", queue="q", jobs=[job()])
    assert detected() == peer.dialect


@each_peer
def test_a_queue_whose_jobs_are_done(library: NodePeer, peer: Peer, detected: Callable[[], str]) -> None:
    library.call("process", queue="q")
    library.call("add", queue="q", jobs=[job(), {**job(), "data": {"$behaviour": "fail"}}])
    library.wait_for_events("completed", 1)
    library.wait_for_events("failed", 1)
    library.call("stop", queue="q")
    assert detected() == peer.dialect


@pytest.mark.parametrize("peer", [peer for peer in PEERS if peer.dialect != "bull-1"], ids=str)
def test_a_queue_with_a_prioritised_job(library: NodePeer, peer: Peer, detected: Callable[[], str]) -> None:
    library.call("add", queue="q", jobs=[job(priority=2)])
    assert detected() == peer.dialect


@each_peer
def test_a_node_worker_takes_what_was_added_to_a_detected_queue(
    library: NodePeer, peer: Peer, redis_url: str, prefix: str
) -> None:
    library.call("add", queue="q", jobs=[job()])
    with BullQueue("q", url=redis_url, prefix=prefix) as queue:
        ours = queue.add({"to": "node"})
    library.call("process", queue="q")
    done = library.wait_for(lambda event: event["event"] == "completed" and event.get("jobId") == ours)
    assert done["returnvalue"] == {"echo": {"to": "node"}}
    library.call("stop", queue="q")
