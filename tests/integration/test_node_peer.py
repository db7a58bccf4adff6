"""The test harness: every Node library can be driven, and dumps show differences of queues."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from redis import Redis

from tests.support.dump import difference, dump, is_job, normalise, normalise_messages, window
from tests.support.jobs import random_jobs
from tests.support.node_peer import NodeError, NodePeer
from tests.support.peers import PEERS, Peer
from tests.support.pubsub import published
from tests.support.wait import wait_until

Start = Callable[..., NodePeer]

each_peer = pytest.mark.parametrize("peer", PEERS, ids=str)


def job(data: object, **opts: object) -> dict[str, object]:
    return {"name": "task", "data": data, "opts": opts}


@each_peer
def test_a_peer_adds_and_reads_back(node: Start, prefix: str, peer: Peer) -> None:
    library = node(peer.alias, prefix=prefix)
    ids = library.call("add", queue="q", jobs=[job({"n": 1}), job({"n": 2}, delay=3_600_000)])

    assert ids == ["1", "2"]
    read = library.call("getJob", queue="q", jobId="1")
    assert (read["id"], read["data"]) == ("1", {"n": 1})
    assert library.call("getJob", queue="q", jobId="7") is None
    assert [seen["id"] for seen in library.call("getJobs", queue="q", states=["delayed"])] == ["2"]
    assert library.call("state", queue="q", jobId="2") == "delayed"
    counts = library.call("counts", queue="q")
    assert (counts.get("wait", counts.get("waiting")), counts["delayed"]) == (1, 1)


@each_peer
def test_a_peer_processes_and_reports(node: Start, prefix: str, peer: Peer) -> None:
    library = node(peer.alias, prefix=prefix, alone=True)
    library.call("process", queue="q", concurrency=2)
    library.call(
        "add",
        queue="q",
        jobs=[
            job({"n": 1}),
            job({"$behaviour": "fail:1"}, attempts=2),
            job({"$behaviour": "fail"}),
            job({"$behaviour": "progress:30;sleep:20;return:[1,2]"}),
        ],
    )

    done = {event["jobId"]: event for event in library.wait_for_events("completed", 3, source="worker")}
    assert set(done) == {"1", "2", "4"}
    assert done["1"]["returnvalue"] == {"echo": {"n": 1}}
    assert done["4"]["returnvalue"] == [1, 2]
    failed = library.wait_for(lambda event: event["event"] == "failed" and event["jobId"] == "3")
    assert failed["failedReason"] == "scripted failure 1"
    assert library.wait_for_events("progress", 1)[0]["progress"] == 30
    assert library.call("state", queue="q", jobId="3") == "failed"
    library.call("stop", queue="q")
    assert not library.events("error"), library.stderr()


@each_peer
def test_a_peer_controls_a_queue(node: Start, prefix: str, peer: Peer) -> None:
    library = node(peer.alias, prefix=prefix)
    library.call("add", queue="q", jobs=[job({}, delay=3_600_000), job({}), job({})])
    library.call("promote", queue="q", jobId="1")
    assert library.call("state", queue="q", jobId="1") in ("wait", "waiting")
    library.call("remove", queue="q", jobId="2")
    library.call("pause", queue="q")
    library.call("process", queue="q")
    # If it were not paused, its jobs would complete before those of a queue that is processed later.
    library.call("process", queue="other")
    library.call("add", queue="other", jobs=[job({})])
    library.wait_for_events("completed", 1, queue="other")
    assert not library.events("completed", queue="q")
    with pytest.raises(AssertionError, match="no removal"):
        library.wait_for(lambda event: event["event"] == "removed", timeout=0.01, what="removal")
    library.call("resume", queue="q")
    library.wait_for_events("completed", 2, queue="q")
    library.call("stop", queue="q")
    assert sorted(library.call("clean", queue="q")) == ["1", "3"]
    library.call("add", queue="q", jobs=[job({})])
    library.call("empty", queue="q")
    assert library.call("getJobs", queue="q", states=["wait"]) == []


@pytest.mark.parametrize("peer", [peer for peer in PEERS if peer.alias != "bull-1.0.0"], ids=str)
def test_a_peer_hears_another(node: Start, prefix: str, peer: Peer) -> None:
    queue = f"q{prefix}"
    listener, worker = node(peer.alias, prefix=prefix), node(peer.alias, prefix=prefix, alone=True)
    listener.call("listen", queue=queue)
    worker.call("process", queue=queue, events=["failed"])
    worker.call("add", queue=queue, jobs=[job({})])
    assert listener.wait_for_events("completed", 1, source="queue")[0]["jobId"] == "1"
    assert not worker.events("completed")


@pytest.mark.parametrize("peer", [peer for peer in PEERS if peer.bulk], ids=str)
def test_a_peer_adds_in_bulk_and_obliterates(node: Start, client: Redis, prefix: str, peer: Peer) -> None:
    library = node(peer.alias, prefix=prefix)
    assert library.call("addBulk", queue="q", jobs=[job({"n": n}) for n in range(5)]) == list("12345")
    library.call("obliterate", queue="q")
    assert not set(dump(client, prefix, "q")) - {"meta"}


def test_an_error_of_the_library_keeps_its_message(node: Start, prefix: str) -> None:
    library = node("bullmq-6.7.0", prefix=prefix)
    with pytest.raises(NodeError, match="Custom Id cannot be integers"):
        library.call("add", queue="q", jobs=[job({}, jobId="17")])
    with pytest.raises(NodeError, match="unknown command"):
        library.call("dance", queue="q")
    library.call("invoke", queue="q", method="setGlobalConcurrency", args=[3])
    assert library.call("invoke", queue="q", method="getGlobalConcurrency") == 3


def test_a_killed_worker_leaves_its_job_active(node: Start, client: Redis, prefix: str) -> None:
    library = node("bullmq-6.7.0", prefix=prefix, alone=True)
    library.call("add", queue="q", jobs=[job({"$behaviour": "hang"})])
    library.call("process", queue="q")
    library.wait_for_events("active", 1)
    library.kill()
    assert not library.alive
    assert dump(client, prefix, "q")["active"].value == ["1"]
    with pytest.raises((AssertionError, OSError)):
        library.call("counts", queue="q")


@each_peer
def test_equal_lists_leave_equal_dumps(node: Start, client: Redis, prefix: str, peer: Peer) -> None:
    library = node(peer.alias, prefix=prefix)
    jobs = random_jobs(Random(1), peer.dialect, 60, custom_ids=peer.custom_ids)
    queues = [f"{side}-{prefix}" for side in ("left", "right")]
    heard, dumps = [], []
    with window() as taken:
        for queue in queues:
            with published(client, prefix, queue) as messages:
                library.call("add", queue=queue, jobs=jobs)
            heard.append(messages)
            dumps.append(dump(client, prefix, queue))
    left, right = (normalise(raw, taken) for raw in dumps)

    assert {key.type for key in left.values()} >= {"list", "zset", "hash", "string"}
    assert difference(left, right) == []
    messages = [normalise_messages(*pair, taken) for pair in zip(heard, [prefix] * 2, dumps, strict=True)]
    assert difference(*messages) == []
    assert bool(messages[0]) == (peer.dialect != "bullmq")

    one = next(name for name, key in right.items() if is_job(key))
    client.hset(f"{prefix}:{queues[1]}:{one}", "extra", "99")
    client.rpush(f"{prefix}:{queues[1]}:wait", "stray")
    client.set(f"{prefix}:{queues[1]}:new", "key")
    client.pexpire(f"{prefix}:{queues[1]}:id", 60_000)
    altered = difference(left, normalise(dump(client, prefix, queues[1]), taken))
    assert any(sentence == f"{one}.extra: only right has '99'" for sentence in altered)
    assert any("items left" in sentence and sentence.startswith("wait:") for sentence in altered)
    assert any(sentence.startswith("new: only right has") for sentence in altered)
    assert any(sentence.startswith("id: only right has (string, expires)") for sentence in altered)


def test_private_keys_are_not_compared(client: Redis, prefix: str) -> None:
    client.set(f"{prefix}:q:spark:stage:1", "x")
    with window() as taken:
        assert normalise(dump(client, prefix, "q"), taken) == {}


def test_wait_until_names_the_condition() -> None:
    assert wait_until(lambda: 7, "seven") == 7
    with pytest.raises(AssertionError, match="a miracle; last seen: 0"):
        wait_until(lambda: 0, "a miracle", timeout=0.05)
