"""`protocol=auto` detects the dialect of queues made by the Node libraries; a wrong protocol is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from redis import Redis

from spark_bull.cli import main
from spark_bull.errors import DialectError
from spark_bull.queue.bull_queue import BullQueue
from spark_bull.services.promoter import Promoter
from spark_bull.services.rescuer import Rescuer
from tests.support.jobs import HOUR
from tests.support.node_peer import NodePeer
from tests.support.peers import PEERS, Peer
from tests.support.wait import PATIENCE_S

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
def test_a_queue_with_one_job_is_detected(
    library: NodePeer, peer: Peer, detected: Callable[[], str], opts: dict[str, object]
) -> None:
    library.call("add", queue="q", jobs=[job(**opts)])
    assert detected() == peer.dialect


@each_peer
def test_a_paused_queue_is_detected(library: NodePeer, peer: Peer, detected: Callable[[], str]) -> None:
    library.call("pause", queue="q")
    library.call("add", queue="q", jobs=[job()])
    assert detected() == peer.dialect


@each_peer
def test_a_queue_with_finished_jobs_is_detected(library: NodePeer, peer: Peer, detected: Callable[[], str]) -> None:
    library.call("process", queue="q")
    library.call("add", queue="q", jobs=[job(), {**job(), "data": {"$behaviour": "fail"}}])
    library.wait_for_events("completed", 1)
    library.wait_for_events("failed", 1)
    library.call("stop", queue="q")
    assert detected() == peer.dialect


@pytest.mark.parametrize("peer", [peer for peer in PEERS if peer.dialect != "bull-1"], ids=str)
def test_a_queue_with_a_prioritised_job_is_detected(library: NodePeer, peer: Peer, detected: Callable[[], str]) -> None:
    library.call("add", queue="q", jobs=[job(priority=2)])
    assert detected() == peer.dialect


@each_peer
def test_a_node_worker_processes_jobs_added_to_a_detected_queue(
    library: NodePeer, peer: Peer, redis_url: str, prefix: str
) -> None:
    library.call("add", queue="q", jobs=[job()])
    with BullQueue("q", url=redis_url, prefix=prefix) as queue:
        ours = queue.add({"to": "node"})
    library.call("process", queue="q")
    done = library.wait_for(lambda event: event["event"] == "completed" and event.get("jobId") == ours)
    assert done["returnvalue"] == {"echo": {"to": "node"}}
    library.call("stop", queue="q")


DIALECTS = ("bull-1", "bull", "bullmq")


def refused(redis_url: str, prefix: str) -> list[str]:
    """The protocols that queue `q` refuses."""
    refused = []
    for protocol in DIALECTS:
        try:
            BullQueue("q", url=redis_url, prefix=prefix, protocol=protocol).close()
        except DialectError as error:
            refused.append(str(error).partition(" (option `protocol`), but it speaks ")[0].split()[-1])
    return refused


def others(peer: Peer) -> list[str]:
    return [dialect for dialect in DIALECTS if dialect != peer.dialect]


@each_peer
@pytest.mark.parametrize("opts", [{}, {"delay": HOUR}], ids=str)
def test_a_queue_with_a_job_refuses_other_protocols(
    library: NodePeer, peer: Peer, redis_url: str, prefix: str, opts: dict[str, object]
) -> None:
    library.call("add", queue="q", jobs=[job(**opts)])
    assert refused(redis_url, prefix) == others(peer)


@each_peer
def test_a_queue_with_only_finished_jobs_refuses_other_protocols(
    library: NodePeer, peer: Peer, redis_url: str, prefix: str
) -> None:
    library.call("process", queue="q")
    library.call("add", queue="q", jobs=[job()])
    library.wait_for_events("completed", 1)
    library.call("stop", queue="q")
    assert refused(redis_url, prefix) == others(peer)


@pytest.mark.parametrize("protocol", DIALECTS)
def test_a_queue_without_jobs_accepts_any_protocol(client: Redis, redis_url: str, prefix: str, protocol: str) -> None:
    for _ in range(2):
        with BullQueue("q", url=redis_url, prefix=prefix, protocol=protocol) as queue:
            assert queue.protocol == protocol
            client.incr(queue.handle.keys["id"])


@each_peer
def test_every_verb_refuses_a_wrong_protocol(
    library: NodePeer, peer: Peer, redis_url: str, prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    library.call("add", queue="q", jobs=[job()])
    for protocol in others(peer):
        for service in (Promoter, Rescuer):
            with pytest.raises(DialectError, match=f"expected queue q to speak {protocol}"):
                service(redis_url, ["q"], prefix=prefix, protocol=protocol).start().await_termination(PATIENCE_S)
        # A glob matches the queue and skips it.
        Promoter(redis_url, ["*"], prefix=prefix, protocol=protocol).once()
        where = ["--url", redis_url, "--prefix", prefix, "--protocol", protocol]
        for command in (["add", "q", "{}"], ["counts", "q"], ["promote", "q", "--once"]):
            assert main([*where, *command]) != 0
            assert f"expected queue q to speak {protocol}" in capsys.readouterr().err
    library.call("process", queue="q")
    done = library.wait_for_events("completed", 1)
    assert [event["jobId"] for event in done] == ["1"]
