"""Flows: what we add is stored as by FlowProducer and Queue.add with a parent, and Node's workers process it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from redis import Redis

from spark_bull.core.dialects.terms import ON_FAILURE
from spark_bull.core.model.jobs import NewJob
from spark_bull.core.model.limits import WorkSettings
from spark_bull.core.model.read_jobs import FlowJob, FlowNode
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.work.claim import work
from spark_bull.run.job.running_job import RunningJob
from tests.support.jobs import HOUR
from tests.support.node import NodePeer, each_peer_of
from tests.support.steps import Differs, Step, Steps, step
from tests.support.two_sides import QUEUES
from tests.support.wait import wait_until

pytestmark = pytest.mark.interop

FLAGS = [
    {},
    {"failParentOnFailure": True},
    {"continueParentOnFailure": True},
    {"ignoreDependencyOnFailure": True},
    {"removeDependencyOnFailure": True},
]
each_seed = pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 6))])


def some_order(random: Random) -> dict[str, Any]:
    """Options that say when a job runs, each with a probability of 0.2."""
    some: dict[str, Any] = {"delay": HOUR, "priority": random.randint(1, 3), "lifo": True}
    return {name: value for name, value in some.items() if random.random() < 0.2}


def plain(n: int, **opts: Any) -> dict[str, Any]:
    return {"name": f"job {n}", "data": {"n": n}, "opts": opts}


def family(n: int, *children: dict[str, Any], queue: str = "main", **opts: Any) -> dict[str, Any]:
    return {**plain(n, **opts), "queueName": queue, "children": list(children)}


def add(queue: str, *jobs: dict[str, Any]) -> Step:
    """Node adds jobs on both sides."""
    return step("add", queue=queue, jobs=list(jobs))


def complete(queue: str, *job_ids: str) -> list[Step]:
    """Waiting jobs complete."""
    return [
        step("redis", command=command)
        for job_id in job_ids
        for command in (
            ["LREM", f"{queue}:wait", 0, job_id],
            ["ZADD", f"{queue}:completed", 1_600_000_000_000, job_id],
            ["HSET", f"{queue}:{job_id}", "returnvalue", '{"sum":1}'],
        )
    ]


@each_peer_of("bullmq")
@each_seed
def test_random_children_of_living_parents_are_added_as_by_node(steps: Steps, seed: int) -> None:
    random = Random(seed)
    # A waiting parent, some that wait for a child, and jobs that have completed.
    done = ["done-1", "done-2", "done-3"]
    life = [add("main", plain(1, jobId="plain"), plain(7, jobId="over")), *complete("main", "over")]
    for name, opts in {"family": {}, "late": {"delay": HOUR}, "urgent": {"priority": 3}}.items():
        first = family(5, queue="main", jobId=f"first-of-{name}")
        life.append(step("flow", flow=family(4, first, jobId=name, **opts)))
    life += [add("other", *(plain(6, jobId=name) for name in done)), *complete("other", *done)]
    # The children of these parents have completed, so that the next finished child releases them.
    life += [step("redis", command=["DEL", f"main:{name}:dependencies"]) for name in ("late", "urgent")]
    jobs = []
    for n in range(100, 160):
        opts: dict[str, Any] = dict(random.choice(FLAGS))
        if random.random() < 0.95:
            # One of the parents has completed, one does not exist.
            name = random.choice(["plain", "family", "late", "urgent", "over", "missing"])
            opts["parent"] = {"id": name, "queue": "<prefix>:main"}
        if random.random() < 0.4:
            opts["jobId"] = random.choice(["x", "y", *done])
        jobs.append(plain(n, **opts, **some_order(random)))
    steps.live([*life, step("add_children", queue="other", jobs=jobs)])


@each_peer_of("bullmq")
def test_a_child_whose_parent_is_gone_gets_a_new_one_as_in_this_version(steps: Steps) -> None:
    first, second = ({"id": name, "queue": "<prefix>:main"} for name in ("first", "second"))
    steps.live(
        [
            add("main", plain(1, jobId="first"), plain(2, jobId="second")),
            step("add_children", queue="other", jobs=[plain(3, jobId="child", parent=first)]),
            step("redis", command=["DEL", "main:first"]),
            step(
                "add_children",
                queue="other",
                jobs=[plain(4, jobId="child", parent=second, failParentOnFailure=True)],
            ),
        ]
    )


# trees


class Trees:
    """Random flows in Node's form. Each job has a different `n` in its payload."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.jobs = 0

    def flows(self, count: int) -> list[dict[str, Any]]:
        return [self.node(depth=4, is_root=True) for _ in range(count)]

    def node(self, depth: int, *, is_root: bool = False) -> dict[str, Any]:
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
        elif is_root and random.random() < 0.2:
            opts["parent"] = {"id": "outer", "queue": "<prefix>:main"}
        return {
            "name": f"job {number}",
            "queueName": random.choice(QUEUES),
            "data": {"n": number, "text": "é" * random.randint(0, 3)},
            "opts": opts,
            **({"children": children} if children or random.random() < 0.5 else {}),
        }


@each_peer_of("bullmq")
@each_seed
def test_random_trees_are_added_as_by_flow_producer(steps: Steps, seed: int) -> None:
    trees = Trees(seed)
    life = [add("main", plain(0, jobId="outer")), *(step("flows", flows=trees.flows(count)) for count in (1, 20, 1))]
    assert trees.jobs > 50
    steps.live(life)


@each_peer_of("bullmq-6")
def test_trees_are_added_as_by_flow_producer_to_paused_queues(steps: Steps) -> None:
    steps.live(
        [
            add("main", plain(0, jobId="outer")),
            *(step("pause", queue=queue) for queue in QUEUES),
            step("flows", flows=Trees(7).flows(20)),
        ]
    )


@each_peer_of("bullmq")
def test_jobs_that_exist_join_a_flow_as_with_flow_producer(steps: Steps) -> None:
    flows = [
        family(10, family(11, queue="other", jobId="old"), family(12, queue="other")),
        # The last child has completed.
        family(20, family(21), family(22, queue="other", jobId="done")),
        family(30, family(31, family(32), queue="other", jobId="gone")),
    ]
    known = [plain(n, jobId=name) for n, name in enumerate(("old", "done", "gone", "end"))]
    steps.live([add("other", *known), *complete("other", "done", "end"), step("flows", flows=flows)])


@each_peer_of("bullmq-6")
def test_parents_whose_children_have_all_completed_start_in_the_same_order(steps: Steps) -> None:
    names = [f"done-{n}" for n in range(6)]
    children = [family(n, queue="other", jobId=name) for n, name in enumerate(names)]
    late, urgent = family(30, *children[2:4], delay=HOUR), family(40, children[4], priority=2)
    flows = [family(20, *children[:2]), late, urgent, family(50, children[5])]
    known = [plain(n, jobId=name) for n, name in enumerate(names)]
    steps.live([add("other", *known), *complete("other", *names), step("flows", flows=flows)])
    counts = steps.ours["main"].counts()
    assert (counts["wait"], counts["delayed"], counts["prioritized"], counts["waiting-children"]) == (2, 1, 1, 0)


@each_peer_of("bullmq-5")
def test_a_completed_child_does_not_start_a_parent_before_its_other_children_are_added(steps: Steps) -> None:
    """An intended difference: BullMQ 5 releases the parent at once, which then can't complete."""
    flow = family(2, family(3, queue="other", jobId="done"), family(4, queue="other"))
    known = [add("other", plain(1, jobId="done")), *complete("other", "done")]
    with pytest.raises(Differs, match="main:waiting-children: only right has"):
        steps.live([*known, step("flows", flows=[flow])])


# what Node reads and processes


@pytest.fixture
def queues(open_queue: Callable[..., BullQueue]) -> dict[str, BullQueue]:
    return {name: open_queue(name, "bullmq") for name in "abc"}


@each_peer_of("bullmq")
def test_dependencies_and_their_counts_are_those_that_node_reads(
    theirs: NodePeer, queues: dict[str, BullQueue], prefix: str
) -> None:
    node, queue = theirs, queues["a"]
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
    read = node.call("invoke", queue="a", jobId="p", method="getDependencies")
    ours = queue.dependencies("p")
    assert {(one.queue, one.id) for one in ours} == {("a", "p")}

    def keys(state: str) -> set[str]:
        return {f"{prefix}:{one.child_queue}:{one.child_id}" for one in ours if one.state == state}

    for state in ("unprocessed", "processed", "ignored", "failed"):
        assert keys(state) == {*read[state]}
    assert ("c", "x:y:z") in {(one.child_queue, one.child_id) for one in ours}
    values = {one.child_id: one.value for one in ours if one.value is not None}
    assert values == {"good-0": "0", "good-1": "1", "good-2": "2", "ignored": "scripted failure 1"}


def ids_of(found: FlowNode | None) -> list[Any] | None:
    """A tree as Node's adapter shows it; the order of children is random."""
    if found is None or found.job is None:
        return None
    state = "waiting" if found.job.state == "wait" else found.job.state
    return [found.queue, found.id, state, in_order(map(ids_of, found.children))]


def in_order(children: Iterable[list[Any] | None]) -> list[list[Any] | None]:
    return sorted(children, key=str)


def ordered(theirs: list[Any] | None) -> list[Any] | None:
    return theirs and [*theirs[:3], in_order(map(ordered, theirs[3]))]


@each_peer_of("bullmq")
@each_seed
def test_a_flow_is_the_tree_that_node_reads(theirs: NodePeer, queues: dict[str, BullQueue], seed: int) -> None:
    random, node, queue = Random(seed), theirs, queues["a"]

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
            wait_until(lambda: not any(map(queues["b"].counts().get, ("wait", "active"))), "queue b to be empty")
            node.call("stop", queue="b")
        for depth in (1, 2, 10):
            read = node.call("getFlow", queue="a", jobId=flow.id, depth=depth)
            assert ids_of(queue.get_flow(flow.id, max_depth=depth)) == ordered(read)
    assert node.call("getFlow", queue="a", jobId="none") is None
    assert queue.get_flow("none") is None


@each_peer_of("bullmq")
def test_a_child_is_added_as_node_adds_it(
    theirs: NodePeer, queues: dict[str, BullQueue], client: Redis, prefix: str
) -> None:
    """A child that its parent adds while it runs."""
    parents, children = queues["a"], queues["b"]
    job_id = parents.add({})
    (claimed,) = work(parents.handle, WorkSettings("slot"), None, 1).jobs
    job, ids = RunningJob(claimed, parents.handle), []

    def stored(child_id: str) -> dict[bytes, Any]:
        fields = client.hgetall(children.handle.keys.job(child_id))
        del fields[b"timestamp"]
        return fields | {name: json.loads(fields[name]) for name in (b"opts", b"parent")}

    for on_failure, option in ON_FAILURE.items():
        opts = {
            "parent": {"id": job_id, "queue": f"{prefix}:a"},
            "attempts": 3,
            **({option: True} if option else {}),
        }
        ids += theirs.call("add", queue="b", jobs=[{"name": "child", "data": {"n": 1}, "opts": opts}])
        ids.append(job.add_child(NewJob({"n": 1}, "child", attempts=3), queue="b", on_failure=on_failure))
        assert stored(ids[-1]) == stored(ids[-2])
    keys = {children.handle.keys.job(child_id).encode() for child_id in ids}
    assert client.smembers(parents.handle.keys.children(job_id)) == keys
