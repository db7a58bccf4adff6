"""Flows: what we add is stored as by FlowProducer and Queue.add with a parent, and Node's workers process it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from redis import Redis

from spark_bull.errors import ParentError
from spark_bull.model.jobs import FlowJob, FlowNode, NewJob
from tests.support.flow_pair import QUEUES, FlowPair, on_side, shown
from tests.support.jobs import HOUR
from tests.support.node_peer import NodeError, NodePeer
from tests.support.peers import PEERS, Peer
from tests.support.wait import wait_until

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


def some_order(random: Random) -> dict[str, Any]:
    """Options that say when a job runs, each with a probability of 0.2."""
    opts: dict[str, Any] = {}
    if random.random() < 0.2:
        opts["delay"] = HOUR
    if random.random() < 0.2:
        opts["priority"] = random.randint(1, 3)
    if random.random() < 0.2:
        opts["lifo"] = True
    return opts


def plain(n: int, **opts: Any) -> dict[str, Any]:
    return {"name": f"job {n}", "data": {"n": n}, "opts": opts}


def complete(pair: FlowPair, queue: str, job_id: str) -> None:
    """A waiting job completes."""
    for prefix in pair.prefixes:
        base = f"{prefix}:{queue}:"
        assert pair.client.lrem(f"{base}wait", 0, job_id)
        pair.client.zadd(f"{base}completed", {job_id: 1_600_000_000_000})
        pair.client.hset(f"{base}{job_id}", "returnvalue", '{"sum":1}')


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
        complete(pair, "b", name)
    for prefix in pair.prefixes:
        # The children of these parents have completed, so that the next finished child releases them.
        pair.client.delete(f"{prefix}:a:late:dependencies", f"{prefix}:a:urgent:dependencies")
    pair.in_both("add", queue="c", jobs=[plain(7, jobId="over")])
    complete(pair, "c", "over")
    parents = ["plain", "family", "late", "urgent", "missing"]
    jobs = []
    for n in range(100, 160):
        opts: dict[str, Any] = dict(random.choice(FLAGS))
        if random.random() < 0.9:
            opts["parent"] = {"id": random.choice(parents), "queue": "<prefix>:a"}
        elif random.random() < 0.5:
            # A parent that has completed.
            opts["parent"] = {"id": "over", "queue": "<prefix>:c"}
        if random.random() < 0.4:
            opts["jobId"] = random.choice(["x", "y", "done-1", "done-2", "done-3"])
        opts |= some_order(random)
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


# trees


class Trees:
    """Random flows in Node's form. Each job has a different `n` in its payload."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.jobs = 0

    def flows(self, count: int) -> list[dict[str, Any]]:
        return [self.node(depth=4, is_root=True) for _ in range(count)]

    def node(self, depth: int, *, is_root: bool = False, parents: bool = True) -> dict[str, Any]:
        random, self.jobs = self.random, self.jobs + 1
        number = self.jobs
        opts: dict[str, Any] = {} if is_root else dict(random.choice(FLAGS))
        if random.random() < 0.2:
            opts["jobId"] = f"own-{number}"
        opts |= some_order(random)
        if random.random() < 0.2:
            opts |= {"attempts": 3, "backoff": 100}
        children = [self.node(depth - 1) for _ in range(random.randint(0, 3))] if depth > 1 else []
        if is_root and not children and random.random() < 0.5:
            opts["deduplication"] = {"id": random.choice("xy")}
        return {
            "name": f"job {number}",
            "queueName": random.choice(QUEUES),
            "data": {"n": number, "text": "é" * random.randint(0, 3)},
            "opts": opts,
            **({"children": children} if children or random.random() < 0.5 else {}),
        }


def flow_job(node: dict[str, Any]) -> FlowJob:
    children = [flow_job(child) for child in node.get("children", ())]
    return FlowJob(node["data"], node["name"], queue=node["queueName"], opts=node["opts"], children=children)


def add_flows(pair: FlowPair, flows: list[dict[str, Any]]) -> None:
    pair.nodes[0].call("flows", flows=on_side(flows, pair.prefixes[0]))
    pair.queues["a"].add_flows([flow_job(flow) for flow in on_side(flows, pair.prefixes[1])])


@each_bullmq
@pytest.mark.parametrize("seed", range(6))
def test_random_trees_are_added_as_by_flow_producer(pair: FlowPair, seed: int) -> None:
    trees = Trees(seed)
    pair.in_both("add", queue="a", jobs=[plain(0, jobId="outer")])
    for count in (1, 20, 1):
        flows = trees.flows(count)
        for flow in flows:
            if trees.random.random() < 0.2 and "deduplication" not in flow["opts"]:
                flow["opts"]["parent"] = {"id": "outer", "queue": "<prefix>:a"}
        add_flows(pair, flows)
    assert trees.jobs > 50
    found = pair.differences()
    assert found == [], shown(found)


@each_bullmq
def test_trees_are_added_as_by_flow_producer_to_paused_queues(pair: FlowPair) -> None:
    for queue in QUEUES:
        pair.in_both("pause", queue=queue)
    add_flows(pair, Trees(7).flows(20))
    found = pair.differences()
    assert found == [], shown(found)


def family(n: int, *children: dict[str, Any], queue: str = "a", **opts: Any) -> dict[str, Any]:
    return {"name": f"job {n}", "queueName": queue, "data": {"n": n}, "opts": opts, "children": list(children)}


@each_bullmq
def test_jobs_that_exist_join_a_flow_as_with_flow_producer(pair: FlowPair) -> None:
    pair.in_both("add", queue="b", jobs=[plain(n, jobId=name) for n, name in enumerate(("old", "done", "gone", "end"))])
    complete(pair, "b", "done")
    complete(pair, "b", "end")
    add_flows(
        pair,
        [
            family(10, family(11, queue="b", jobId="old"), family(12, queue="b")),
            # The last child has completed.
            family(20, family(21, queue="c"), family(22, queue="b", jobId="done")),
            family(30, family(31, family(32, queue="a"), queue="b", jobId="gone")),
        ],
    )
    found = pair.differences()
    assert found == [], shown(found)


@pytest.mark.parametrize("peer", [p for p in PEERS if p.alias.startswith("bullmq-6")], ids=str)
def test_parents_whose_children_have_all_completed_start_in_the_same_order(pair: FlowPair) -> None:
    names = [f"done-{n}" for n in range(6)]
    pair.in_both("add", queue="b", jobs=[plain(n, jobId=name) for n, name in enumerate(names)])
    for name in names:
        complete(pair, "b", name)
    children = [family(n, queue="b", jobId=name) for n, name in enumerate(names)]
    late, urgent = family(30, *children[2:4], queue="c", delay=HOUR), family(40, children[4], queue="a", priority=2)
    add_flows(pair, [family(20, *children[:2], queue="c"), late, urgent, family(50, children[5], queue="c")])
    found = pair.differences()
    assert found == [], shown(found)
    counts = pair.queues["c"].counts()
    assert (counts["wait"], counts["delayed"], counts["waiting-children"]) == (2, 1, 0)


@pytest.mark.parametrize("peer", [p for p in PEERS if p.alias.startswith("bullmq-5")], ids=str)
def test_a_completed_child_does_not_start_a_parent_before_its_other_children_are_added(pair: FlowPair) -> None:
    """An intended difference: BullMQ 5 releases the parent at once, which then can't complete."""
    pair.in_both("add", queue="b", jobs=[plain(1, jobId="done")])
    complete(pair, "b", "done")
    add_flows(pair, [family(2, family(3, queue="b", jobId="done"), family(4, queue="b"))])
    waits = [pair.client.zcard(f"{prefix}:a:waiting-children") for prefix in pair.prefixes]
    assert waits == [0, 1]


@each_bullmq
def test_dependencies_and_their_counts_are_those_that_node_reads(pair: FlowPair) -> None:
    node, queue, prefix = pair.nodes[1], pair.queues["a"], pair.prefixes[1]
    policies = {"bad": "fail", "ignored": "ignore", "removed": "remove"}
    children = [
        *(FlowJob({"$behaviour": f"return:{n}", "n": n}, job_id=f"good-{n}", queue="b") for n in range(3)),
        *(FlowJob({"$behaviour": "fail"}, job_id=name, queue="b", on_failure=how) for name, how in policies.items()),
        FlowJob({}, job_id="later", queue="c"),
        FlowJob({}, job_id="x:y:z", queue="c"),
    ]
    queue.add_flow(FlowJob({"n": 9}, job_id="p", children=children))
    node.call("process", queue="b")
    ended = {"processed": 3, "ignored": 1, "failed": 1, "unprocessed": 2}
    wait_until(lambda: queue.dependency_counts("p") == ended, "the children in queue b to end")
    assert node.call("invoke", queue="a", jobId="p", method="getDependenciesCount") == ended
    theirs = node.call("invoke", queue="a", jobId="p", method="getDependencies")
    ours = queue.dependencies("p")
    assert {(one.queue, one.id) for one in ours} == {("a", "p")}

    def keys(state: str) -> set[str]:
        return {f"{prefix}:{one.child_queue}:{one.child_id}" for one in ours if one.state == state}

    assert {state: keys(state) for state in ("unprocessed", "processed", "ignored", "failed")} == {
        "unprocessed": set(theirs["unprocessed"]),
        "processed": set(theirs["processed"]),
        "ignored": set(theirs["ignored"]),
        "failed": set(theirs["failed"]),
    }
    assert ("c", "x:y:z") in {(one.child_queue, one.child_id) for one in ours}
    values = {one.child_id: one.value for one in ours if one.value is not None}
    assert values == {"good-0": "0", "good-1": "1", "good-2": "2", "ignored": "scripted failure 1"}


def ids_of(found: FlowNode | None) -> list[Any] | None:
    """A tree as Node's adapter shows it; the order of children is random."""
    if found is None or found.job is None:
        return None
    return [
        found.queue,
        found.id,
        NODE_STATES.get(str(found.job.state), found.job.state),
        in_order(map(ids_of, found.children)),
    ]


def in_order(children: Iterable[list[Any] | None]) -> list[list[Any] | None]:
    return sorted(children, key=str)


def ordered(theirs: list[Any] | None) -> list[Any] | None:
    return theirs and [*theirs[:3], in_order(map(ordered, theirs[3]))]


NODE_STATES = {"wait": "waiting"}


@each_bullmq
@pytest.mark.parametrize("seed", range(3))
def test_a_flow_is_the_tree_that_node_reads(pair: FlowPair, seed: int) -> None:
    random, node, queue = Random(seed), pair.nodes[1], pair.queues["a"]

    def tree(depth: int) -> FlowJob:
        children = [tree(depth - 1) for _ in range(random.randint(0, 3) if depth < 4 else 3)] if depth else []
        keep = random.choice([None, True])
        data = {"$behaviour": random.choice(["return:1", "fail"])}
        opts = {"on_failure": random.choice(["wait", "ignore", "fail"]), "remove_on_complete": keep}
        return FlowJob(data, queue=random.choice("bc"), children=children, **opts)

    top = replace(tree(4), queue="a", on_failure=None)
    flow = queue.add_flow(top)
    for processed in (False, True):
        if processed:
            node.call("process", queue="b")
            wait_until(lambda: not any(map(pair.queues["b"].counts().get, ("wait", "active"))), "queue b to be empty")
            node.call("stop", queue="b")
        for depth in (1, 2, 10):
            theirs = node.call("getFlow", queue="a", jobId=flow.id, depth=depth)
            assert ids_of(queue.get_flow(flow.id, max_depth=depth)) == ordered(theirs)
    assert node.call("getFlow", queue="a", jobId="none") is None
    assert queue.get_flow("none") is None


@each_bullmq
def test_node_processes_our_flows_children_first_also_while_they_are_added(pair: FlowPair) -> None:
    node, queues = pair.nodes[1], pair.queues
    for name in QUEUES:
        node.call("process", queue=name, concurrency=5)

    def tree(n: int, depth: int) -> FlowJob:
        children = [tree(n, depth - 1) for _ in range(2)] if depth else []
        return FlowJob({"$behaviour": f"return:{depth}", "n": n}, queue=QUEUES[depth], children=children)

    # A completed job is one of the children of some flows.
    queues["a"].add({"$behaviour": "return:7"}, job_id="old")
    wait_until(lambda: queues["a"].counts()["completed"] == 1, "the first job")
    added = queues["c"].add_flows(tree(n, 2) for n in range(100))
    added += queues["c"].add_flows([FlowJob({}, job_id="last", children=[FlowJob({}, job_id="old", queue="a")])])
    total = {"a": 401, "b": 200, "c": 101}
    wait_until(lambda: {name: q.counts()["completed"] for name, q in queues.items()} == total, "all jobs of all flows")
    for flow in added[:-1]:
        assert list(queues["c"].children_values(flow.id).values()) == [1, 1]
    assert list(queues["c"].children_values("last").values()) == [7]
    assert not any(q.counts()["failed"] for q in queues.values())
