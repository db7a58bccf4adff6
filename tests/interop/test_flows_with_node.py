"""Flows: what we add is stored as by FlowProducer and Queue.add with a parent, and Node's workers process it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from random import Random
from typing import Any

import pytest
from redis import Redis

from spark_bull.errors import ParentError
from spark_bull.model import NewJob
from tests.support.flow_pair import FlowPair, on_side, shown
from tests.support.jobs import HOUR
from tests.support.node_peer import NodeError, NodePeer
from tests.support.peers import PEERS, Peer

each_bullmq = pytest.mark.parametrize("peer", [p for p in PEERS if p.dialect == "bullmq"], ids=str)

pytestmark = pytest.mark.interop

FLAGS = [
    {},
    {"failParentOnFailure": True},
    {"continueParentOnFailure": True},
    {"ignoreDependencyOnFailure": True},
    {"removeDependencyOnFailure": True},
]


@pytest.fixture
def pair(peer: Peer, node: Callable[..., NodePeer], client: Redis, redis_url: str, prefix: str) -> Iterator[FlowPair]:
    prefixes = (f"{prefix}-left", f"{prefix}-ours")
    nodes = (node(peer.alias, prefix=prefixes[0]), node(peer.alias, prefix=prefixes[1]))
    with closing(FlowPair(peer, nodes, prefixes, client, redis_url)) as pair:
        yield pair


def plain(n: int, **opts: Any) -> dict[str, Any]:
    return {"name": f"job {n}", "data": {"n": n}, "opts": opts}


def add_children(pair: FlowPair, queue: str, jobs: list[dict[str, Any]]) -> None:
    """Adds jobs one by one with Node; with us, together. The same ones must be refused."""
    refused = []
    for position, job in enumerate(on_side(jobs, pair.prefixes[0])):
        try:
            pair.nodes[0].call("add", queue=queue, jobs=[job])
        except NodeError as error:
            reason = "missing" if "Missing key for parent job" in str(error) else "other parent"
            refused.append((position, reason))
    new_jobs = [NewJob(**{**job, "opts": job["opts"]}) for job in on_side(jobs, pair.prefixes[1])]
    ours = pair.queues[queue]
    if not refused:
        ours.add_many(new_jobs)
        return
    position, reason = refused[0]
    with pytest.raises(ParentError, match=rf"^row {position}: ") as raised:
        ours.add_many(new_jobs)
    assert ("another parent" in str(raised.value)) is (reason == "other parent")


@each_bullmq
@pytest.mark.parametrize("seed", range(4))
def test_random_children_of_living_parents_are_added_as_by_node(pair: FlowPair, seed: int) -> None:
    random = Random(seed)
    # A waiting parent, one that waits for a child, and jobs that have completed.
    pair.in_both("add", queue="a", jobs=[plain(1, jobId="plain"), *(plain(n, jobId=f"gone-{n}") for n in (2, 3))])
    for name, delay in (("family", 0), ("late", HOUR), ("urgent", 0)):
        opts = {"jobId": name, **({"delay": delay} if delay else {}), **({"priority": 3} if name == "urgent" else {})}
        child = {"queueName": "c", "opts": {"jobId": f"first-of-{name}"}, "name": "c", "data": {"n": 5}}
        pair.in_both("flow", flow={"queueName": "a", "name": "p", "data": {"n": 4}, "opts": opts, "children": [child]})
    for name in ("done-1", "done-2", "done-3"):
        pair.in_both("add", queue="b", jobs=[plain(6, jobId=name)])
        for prefix in pair.prefixes:
            base = f"{prefix}:b:"
            pair.client.lrem(f"{base}wait", 0, name)
            pair.client.zadd(f"{base}completed", {name: 1_600_000_000_000})
            pair.client.hset(f"{base}{name}", "returnvalue", '{"sum":1}')
    for prefix in pair.prefixes:
        # The children of these parents have completed, so that the next finished child releases them.
        pair.client.delete(f"{prefix}:a:late:dependencies", f"{prefix}:a:urgent:dependencies")
    parents = ["plain", "family", "late", "urgent", "missing"]
    jobs = []
    for n in range(100, 160):
        opts: dict[str, Any] = dict(random.choice(FLAGS))
        if random.random() < 0.9:
            opts["parent"] = {"id": random.choice(parents), "queue": "<prefix>:a"}
        if random.random() < 0.4:
            opts["jobId"] = random.choice(["x", "y", "done-1", "done-2", "done-3"])
        if random.random() < 0.2:
            opts["delay"] = HOUR
        if random.random() < 0.2:
            opts["priority"] = random.randint(1, 3)
        if random.random() < 0.2:
            opts["lifo"] = True
        jobs.append(plain(n, **opts))
    add_children(pair, "b", jobs)
    found = pair.differences()
    assert found == [], shown(found)


@each_bullmq
def test_a_child_whose_parent_is_gone_gets_a_new_one_as_in_this_version(pair: FlowPair) -> None:
    pair.in_both("add", queue="a", jobs=[plain(1, jobId="first"), plain(2, jobId="second")])
    child = plain(3, jobId="child", parent={"id": "first", "queue": "<prefix>:a"})
    add_children(pair, "b", [child])
    for prefix in pair.prefixes:
        pair.client.delete(f"{prefix}:a:first")
    again = plain(4, jobId="child", parent={"id": "second", "queue": "<prefix>:a"}, failParentOnFailure=True)
    add_children(pair, "b", [again])
    found = pair.differences()
    assert found == [], shown(found)
