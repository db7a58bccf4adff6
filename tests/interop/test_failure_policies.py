"""The end of a child means the same for its parent, whether Node or we process which of them.

All flows are processed by Node's workers alone, and by mixtures of Node's and ours: the keys must be equal in the end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import pytest
from redis import Redis

from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.work import claim as claims
from tests.support.dump import Dump, Key, Window, comparable, difference, dump
from tests.support.jobs import HOUR
from tests.support.node import NodePeer, Peer, each_peer_of
from tests.support.two_sides import BLOCKED
from tests.support.wait import wait_until
from tests.support.without_spark import OurStream
from tests.support.worker import OurWorker

Flow = dict[str, Any]

pytestmark = pytest.mark.interop

#: Queues of grandparents, parents and children.
QUEUES = ("top", "middle", "bottom")
#: Who processes these queues.
WORKERS = [
    ("loop", "loop", "loop"),
    ("stream", "stream", "stream"),
    ("node", "loop", "node"),
    ("loop", "node", "stream"),
]
FAIL, CONTINUE = {"failParentOnFailure": True}, {"continueParentOnFailure": True}
IGNORE, REMOVE = {"ignoreDependencyOnFailure": True}, {"removeDependencyOnFailure": True}


def node_of(queue: str, behaviour: str, children: Sequence[Flow] = (), **opts: Any) -> Flow:
    data = {"$behaviour": behaviour}
    return {"name": "part", "queueName": queue, "data": data, "opts": opts, "children": [*children]}


def top(*children: Flow, behaviour: str = "values", **opts: Any) -> Flow:
    return node_of("top", behaviour, children, **opts)


def middle(*children: Flow, behaviour: str = "values", **opts: Any) -> Flow:
    return node_of("middle", behaviour, children, **opts)


def bottom(behaviour: str = 'return:"done"', **opts: Any) -> Flow:
    return node_of("bottom", behaviour, **opts)


#: Flows by their names, and the states of their jobs in the end, parents before their children; None: the job is gone.
FLOWS: dict[str, tuple[Flow, list[str | None]]] = {
    "all-complete": (top(middle(bottom(), bottom())), ["completed"] * 4),
    "fail": (top(middle(bottom("fail", **FAIL), bottom())), ["waiting-children", "failed", "failed", "completed"]),
    "fail-both": (top(middle(bottom("fail", **FAIL), **FAIL)), ["failed"] * 3),
    "fail-before-the-others": (
        top(middle(bottom("fail", **FAIL), bottom(delay=HOUR), **FAIL)),
        ["failed", "failed", "failed", "delayed"],
    ),
    "ignore": (top(middle(bottom("fail", **IGNORE), bottom())), ["completed", "completed", "failed", "completed"]),
    "ignore-all": (top(middle(bottom("fail", **IGNORE), **FAIL)), ["completed", "completed", "failed"]),
    "remove": (top(middle(bottom("fail", **REMOVE), bottom())), ["completed", "completed", "failed", "completed"]),
    "continue": (
        top(middle(bottom("fail", **CONTINUE), bottom(delay=HOUR), behaviour="prune;values")),
        ["completed", "completed", "failed", None],
    ),
    "no-policy": (top(middle(bottom("fail"))), ["waiting-children", "waiting-children", "failed"]),
    "fail-then-ignore": (top(middle(bottom("fail", **FAIL), **IGNORE)), ["completed", "failed", "failed"]),
    "fail-then-remove": (top(middle(bottom("fail", **FAIL), **REMOVE)), ["completed", "failed", "failed"]),
    "fail-then-continue": (top(middle(bottom("fail", **FAIL), **CONTINUE)), ["completed", "failed", "failed"]),
    "give-up": (top(middle(bottom("discard", attempts=5, **FAIL), **IGNORE)), ["completed", "failed", "failed"]),
    "retries-left": (top(middle(bottom("fail:2", attempts=3, **FAIL))), ["completed"] * 3),
    "no-retry-left": (top(middle(bottom("fail:3", attempts=3, **IGNORE))), ["completed", "completed", "failed"]),
    "parent-retries": (top(middle(bottom(), behaviour="fail:1;values", attempts=2)), ["completed"] * 3),
    "parent-fails": (top(middle(bottom(), behaviour="fail", **IGNORE)), ["completed", "failed", "completed"]),
    "parent-has-retries-left": (
        top(middle(bottom("fail", **FAIL), attempts=3, **IGNORE)),
        ["completed", "failed", "failed"],
    ),
    "removed-when-completed": (top(middle(bottom(removeOnComplete=True))), ["completed", "completed", None]),
    "removed-when-ignored": (
        top(middle(bottom("fail", removeOnFail=True, **IGNORE), bottom())),
        ["completed", "completed", None, "completed"],
    ),
    "removed-without-policy": (top(middle(bottom("fail", removeOnFail=True))), ["completed", "completed", None]),
    "removed-when-failing": (
        top(middle(bottom("fail", removeOnFail=True, **FAIL), removeOnFail=True, **FAIL)),
        ["failed", None, None],
    ),
    "delayed-parent": (top(middle(bottom(), delay=50)), ["completed"] * 3),
    "prioritized-parent": (top(middle(bottom(), priority=3), priority=2), ["completed"] * 3),
    "grows": (top(middle(bottom(), behaviour="child:bottom;wait;values")), ["completed"] * 3),
    "stalled-and-failing": (top(middle(bottom(**FAIL), **IGNORE)), ["completed", "failed", "failed"]),
    "stalled-and-ignored": (top(middle(bottom(**IGNORE))), ["completed", "completed", "failed"]),
    "four-levels": (
        top(middle(node_of("bottom", "values", [node_of("top", "fail", **FAIL)], **FAIL), **IGNORE)),
        ["completed", "failed", "failed", "failed"],
    ),
}
STALLED = [name for name in FLOWS if name.startswith("stalled")]
TIME = re.compile(r"\b1[0-9]{12}\b")


def named(flow: Flow, name: str) -> Iterator[tuple[str, str]]:
    """Gives ids to the jobs of a flow; yields the queue and the id of each, parents before their children."""
    flow["opts"] = {**flow["opts"], "jobId": name}
    yield flow["queueName"], name
    for number, child in enumerate(flow["children"]):
        yield from named(child, f"{name}-{number}")


class Side:
    """All flows under one prefix."""

    def __init__(self, node: NodePeer, client: Redis, prefix: str, open_queue: Callable[..., BullQueue]) -> None:
        self.node, self.client, self.prefix, self.window = node, client, prefix, Window()
        self.queues = {name: open_queue(name, "bullmq", prefix=prefix) for name in QUEUES}
        self.jobs: dict[str, list[tuple[str, str]]] = {}
        for name, (flow, _) in FLOWS.items():
            copy = json.loads(json.dumps(flow))
            self.jobs[name] = list(named(copy, name))
            node.call("flow", flow=copy)
        for name in STALLED:
            self._stall(f"{name}-0-0")

    def _stall(self, job_id: str) -> None:
        """The job has stalled once, and is active without a lock."""
        keys = self.queues["bottom"].handle.keys
        self.client.lrem(keys["wait"], 0, job_id)
        self.client.lpush(keys["active"], job_id)
        self.client.sadd(keys["stalled"], job_id)
        self.client.hset(keys.job(job_id), "stc", 1)

    def live(self, workers: Sequence[str]) -> None:
        """Lets these workers process the queues until no job can go on."""
        with ExitStack() as stack:
            for name, kind in zip(QUEUES, workers, strict=True):
                stack.enter_context(self._worker(kind, name))
            seen: list[Any] = []

            def is_over() -> bool:
                # Children first, as parents start when these end.
                counts = [self.queues[name].counts() for name in reversed(QUEUES)]
                busy = any(queue[state] for queue in counts for state in ("wait", "active", "prioritized"))
                # Delayed children stay.
                is_still = seen[-1:] == [counts] and not busy and not any(queue["delayed"] for queue in counts[1:])
                seen.append(counts)
                return is_still

            wait_until(is_over, f"the flows to end with {', '.join(workers)}")

    @contextmanager
    def _worker(self, kind: str, name: str) -> Iterator[None]:
        queue = self.queues[name]
        if kind == "node":
            self.node.call("process", queue=name, opts={"stalledInterval": 100})
            yield
            self.node.call("stop", queue=name)
            return
        claims.rescue(queue.handle)
        with OurWorker(queue.handle) if kind == "loop" else OurStream(queue):
            yield

    def states(self, name: str) -> list[str | None]:
        found = [self.queues[queue].job(job_id) for queue, job_id in self.jobs[name]]
        return [job and job.state for job in found]

    def keys(self) -> dict[str, Dump]:
        raw = {name: comparable(dump(self.client, self.prefix, name), self.window) for name in QUEUES}
        return {name: {key: self._unordered(one) for key, one in keys.items()} for name, keys in raw.items()}

    def _unordered(self, key: Key) -> Key:
        value = sorted(key.value, key=str) if key.type == "list" else key.value
        text = json.dumps(value).replace(f"{self.prefix}:", "<prefix>:")
        return replace(key, value=json.loads(TIME.sub("<time>", BLOCKED.sub("<blocked>", text))))


@pytest.fixture(scope="module")
def by_node() -> dict[str, dict[str, Dump]]:
    """The keys that Node's workers leave, by package: they are processed once."""
    return {}


@pytest.mark.timeout(600)
@each_peer_of("bullmq")
@pytest.mark.parametrize("workers", WORKERS, ids="-".join)
def test_parents_end_as_with_node_whoever_processes_which_job(
    theirs: NodePeer,
    node: Callable[..., NodePeer],
    client: Redis,
    open_queue: Callable[..., BullQueue],
    prefix: str,
    peer: Peer,
    workers: Sequence[str],
    by_node: dict[str, dict[str, Dump]],
) -> None:
    def lived(node: NodePeer, prefix: str, workers: Sequence[str]) -> dict[str, Dump]:
        side = Side(node, client, prefix, open_queue)
        side.live(workers)
        assert {flow: side.states(flow) for flow in FLOWS} == {flow: states for flow, (_, states) in FLOWS.items()}
        return side.keys()

    if peer.alias not in by_node:
        by_node[peer.alias] = lived(node(peer.alias, prefix=f"{prefix}:node"), f"{prefix}:node", ["node"] * 3)
    found = difference(by_node[peer.alias], lived(theirs, prefix, workers))
    # A claiming query has a name, Node's workers have none here.
    found = [one for one in found if ".pb: only right has 'spark-" not in one]
    assert found == [], "\n".join(found[:40])
