"""The same scripted lives, lived once in Node's worker and once in ours, leave the same keys.

Every key of both queues is compared, times and ids aside. What may differ stands in `_told`, with its reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from redis import Redis

from spark_bull.bull_queue import BullQueue
from spark_bull.dialects.handle import QueueHandle
from spark_bull.runtime.promoter import Promoter
from tests.support.dump import Dump, Key, Window, difference, dump, normalise
from tests.support.node_peer import NodePeer
from tests.support.peers import PEERS, Peer
from tests.support.wait import wait_until
from tests.support.worker import OurWorker

StartNode = Callable[..., NodePeer]

each_peer = pytest.mark.parametrize("peer", PEERS, ids=str)
each_bullmq = pytest.mark.parametrize("peer", [p for p in PEERS if p.dialect == "bullmq"], ids=str)

#: What differs on purpose: the start of a package's name, a pattern of sentences, and why.
KNOWN = [
    ("bull-1.0.0", r"\d+\.(failedReason|lockAcquired): only right", "Bull 1.1 and 2 write them, 1.0 takes no notice"),
    ("bull-1", r"\d+:logs: only right", "Bull 1 has no logs; ours are kept where later versions keep them"),
    ("bullmq", r".*pending dependencies", "a message for people, in our own words"),
]
#: Lives that a package can't live.
UNKNOWN_TO = {
    "bull-1.0.0": ("discarded", "removed on completion", "some kept"),
    "bull-1.1.3": ("discarded",),
}

#: Keys that a worker needs while it runs; what is in them at its end is chance.
_PASSING = {"marker", "stalled", "stalled-check", "id"}


def job(behaviour: str, **opts: Any) -> dict[str, Any]:
    return {"name": "task", "data": {"$behaviour": behaviour}, "opts": opts}


LIVES = {
    "success": [job("return:1"), job('return:{"a":[1,"é/b"]}'), job(""), job("return:null")],
    "failure": [job("fail")],
    "retried at once": [job("fail:2", attempts=3), job("fail", attempts=2)],
    "retried later": [job("fail:2", attempts=3, backoff=30), job("fail", attempts=2, backoff=20)],
    "retried exponentially": [job("fail:2", attempts=4, backoff={"type": "exponential", "delay": 20})],
    "discarded": [job("discard;fail", attempts=5)],
    "removed on completion": [job("return:1", removeOnComplete=True), job("return:2")],
    "removed on failure": [job("fail", removeOnFail=True), job("fail")],
    "some kept": [job(f"return:{n}", removeOnComplete=2) for n in range(5)] + [job("fail", removeOnFail=1)] * 3,
    "progress and logs": [job("progress:30;log:one;log:two;progress:60;return:1")],
    "delayed": [job("return:1", delay=40), job("return:2")],
}
PRIORITISED = [job(f"return:{n}", priority=p) for n, p in enumerate([3, 1, 2, 1])] + [job("return:9")]


def settled(queue: BullQueue) -> bool:
    counts = queue.counts()
    return not any(counts[state] for state in counts if state not in ("completed", "failed"))


def told(raw: Dump, window: Window) -> Dump:
    """What is to be alike: streams as sets, since Node looks after delayed jobs at other moments; traces by number."""
    normal = {name: key for name, key in normalise(raw, window).items() if name not in _PASSING}
    return {name: replace(key, value=_told(name, key)) for name, key in normal.items()}


def _told(name: str, key: Key) -> Any:
    if key.type == "stream":
        return sorted(json.dumps(entry, sort_keys=True) for entry in key.value if entry["event"] != "drained")
    if name == "meta":
        return {field: value for field, value in key.value.items() if field != "version"}
    if key.type == "hash" and "stacktrace" in key.value and isinstance(key.value["stacktrace"], list):
        return {**key.value, "stacktrace": len(key.value["stacktrace"])}
    if name == "delayed" or key.type == "zset":
        return sorted(key.value, key=str)
    return key.value


class Pair:
    """Two queues with the same jobs: `left` is Node's, `right` is ours."""

    def __init__(self, peer: Peer, node: NodePeer, client: Redis, url: str, prefix: str) -> None:
        self.peer, self.node, self.client, self.url, self.prefix = peer, node, client, url, prefix
        self.window = Window()

    def queue(self, side: str) -> BullQueue:
        return BullQueue(f"{side}-{self.prefix}", url=self.url, prefix=self.prefix, protocol=self.peer.dialect)

    def add(self, jobs: list[dict[str, Any]]) -> None:
        for side in ("left", "right"):
            for one in jobs:
                self.node.call("add", queue=f"{side}-{self.prefix}", jobs=[one])

    def live(self) -> None:
        with self.queue("left") as left:
            self.node.call("process", queue=left.name, concurrency=1)
            wait_until(lambda: settled(left), 20, "Node's worker to finish")
            self.node.call("stop", queue=left.name)
        with self.queue("right") as right:
            promoter = Promoter(self.url, [right.name], prefix=self.prefix, protocol=self.peer.dialect, rescue=False)
            with promoter, OurWorker(right.handle):
                wait_until(lambda: settled(right), 20, "our worker to finish")

    def differences(self) -> list[str]:
        """What is neither alike nor known."""
        raw = {side: dump(self.client, self.prefix, f"{side}-{self.prefix}") for side in ("left", "right")}
        left, right = (_as_one(told(raw[side], self.window), f"{side}-{self.prefix}") for side in ("left", "right"))
        known = [pattern for package, pattern, _ in KNOWN if self.peer.alias.startswith(package)]
        return [found for found in difference(left, right) if not any(re.match(pattern, found) for pattern in known)]


def _as_one(told_of: Dump, name: str) -> Any:
    """Names of the queues themselves stand in keys of parents and children."""
    return {key: replace(value, value=_renamed(value.value, name)) for key, value in told_of.items()}


def _renamed(value: Any, name: str) -> Any:
    return json.loads(json.dumps(value).replace(name, "<queue>"))


@pytest.fixture
def pair(peer: Peer, node: StartNode, client: Redis, redis_url: str, prefix: str) -> Pair:
    return Pair(peer, node(peer.alias, prefix=prefix), client, redis_url, prefix)


@pytest.mark.parametrize(
    ("peer", "life"),
    [(peer, life) for peer in PEERS for life in LIVES if life not in UNKNOWN_TO.get(peer.alias, ())],
    ids=str,
)
def test_a_life_in_our_hands_leaves_what_it_leaves_in_node_s(pair: Pair, peer: Peer, life: str) -> None:
    pair.add(LIVES[life])
    pair.live()
    assert "\n".join(pair.differences()) == ""


@pytest.mark.parametrize("peer", [p for p in PEERS if p.dialect != "bull-1"], ids=str)
def test_prioritised_jobs_are_taken_in_their_order(pair: Pair, peer: Peer) -> None:
    pair.add(PRIORITISED)
    pair.live()
    assert "\n".join(pair.differences()) == ""


def flow(child: dict[str, Any], opts: dict[str, Any] | None = None) -> Callable[[str], dict[str, Any]]:
    """A parent whose one child behaves as given, both in one queue."""
    return lambda queue: {
        "name": "parent",
        "queueName": queue,
        "data": {"$behaviour": "return:1"},
        "opts": {"jobId": "parent", **(opts or {})},
        "children": [
            {"name": "child", "queueName": queue, "data": child["data"], "opts": {"jobId": "child", **child["opts"]}},
            {"name": "other", "queueName": queue, "data": {"$behaviour": "return:2"}, "opts": {"jobId": "other"}},
        ],
    }


FLOWS = {
    "children complete": flow(job("return:7")),
    "a prioritised parent": flow(job("return:7"), {"priority": 2}),
    "a child is removed on completion": flow(job("return:7", removeOnComplete=True)),
    "the parent fails with a child": flow(job("fail", failParentOnFailure=True)),
    "the parent goes on": flow(job("fail", continueParentOnFailure=True)),
    "a failed child is ignored": flow(job("fail", ignoreDependencyOnFailure=True)),
    "a failed child is removed": flow(job("fail", removeDependencyOnFailure=True)),
}


@each_bullmq
@pytest.mark.parametrize("name", FLOWS)
def test_a_flow_made_by_node_completes_in_our_hands(pair: Pair, peer: Peer, name: str) -> None:
    for side in ("left", "right"):
        pair.node.call("flow", flow=FLOWS[name](f"{side}-{pair.prefix}"))
    pair.live()
    assert "\n".join(pair.differences()) == ""


@pytest.mark.parametrize("peer", [p for p in PEERS if p.dialect != "bull-1"], ids=str)
def test_a_job_that_stalls_twice_ends_as_in_node(pair: Pair, peer: Peer) -> None:
    """Its worker died: it is active without a lock. Node's checker looks after one queue, ours after the other."""
    pair.add([job("return:1")])
    handles = {side: pair.queue(side).handle for side in ("left", "right")}
    settings = {"stalledInterval": 150, "maxStalledCount": 1}
    options = settings if peer.dialect == "bullmq" else {"settings": {**settings, "guardInterval": 100}}
    for _ in range(2):
        for handle in handles.values():
            _lose_worker(handle)
    pair.node.call("process", queue=handles["left"].keys.queue, concurrency=1, opts=options)
    left, right = pair.queue("left"), pair.queue("right")
    wait_until(lambda: settled(left), 20, "Node's worker to finish")
    pair.node.call("stop", queue=left.name)
    with (
        Promoter(pair.url, [right.name], prefix=pair.prefix, protocol=peer.dialect, check_ms=150),
        OurWorker(right.handle),
    ):
        wait_until(lambda: settled(right), 20, "our worker to finish")
    assert "\n".join(pair.differences()) == ""


def _lose_worker(handle: QueueHandle) -> None:
    keys = handle.keys
    if not handle.connection.call("LRANGE", keys["active"], 0, -1):
        handle.connection.call("RPOPLPUSH", keys["wait"], keys["active"])
