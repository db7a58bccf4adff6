"""The same scripted jobs, processed by a Node worker and by ours, leave the same keys.

Every key of both queues is compared, without times and ids. pair.py lists the intended differences.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark_bull.core.queue.bull_queue import BullQueue
from tests.conformance.pair import Pair
from tests.support.jobs import HOUR, job
from tests.support.node import NEWEST, PEERS, Peer, each_peer_of
from tests.support.traffic import published
from tests.support.wait import wait_until

#: Cases that a package does not support.
UNKNOWN_TO = {
    "bull-1.0.0": ("discarded", "removed on completion", "some kept", "prioritised"),
    "bull-1.1.3": ("discarded", "prioritised"),
}

LIVES = {
    "ended or retried at once": [
        *(job(one) for one in ("return:1", 'return:{"a":[1,"é/b"]}', "", "return:null", "fail")),
        *(job("fail:2", attempts=3), job("fail", attempts=2)),
        job("progress:30;log:one;log:two;progress:60;return:1"),
    ],
    "retried later": [job("fail:2", attempts=3, backoff=30), job("fail", attempts=2, backoff=20)],
    "retried exponentially": [job("fail:2", attempts=4, backoff={"type": "exponential", "delay": 20})],
    "discarded": [job("discard;fail", attempts=5)],
    "removed on completion": [job("return:1", removeOnComplete=True), job("return:2")],
    "removed on failure": [job("fail", removeOnFail=True), job("fail")],
    "some kept": [job(f"return:{n}", removeOnComplete=2) for n in range(5)] + [job("fail", removeOnFail=1)] * 3,
    "delayed": [job("return:1", delay=40), job("return:2")],
    "prioritised": [job(f"return:{n}", priority=p) for n, p in enumerate([3, 1, 2, 1])] + [job("return:9")],
}


@pytest.mark.parametrize(
    ("peer", "life"),
    [
        pytest.param(peer, life, marks=() if peer.alias in NEWEST else pytest.mark.rest, id=f"{peer}-{life}")
        for peer in PEERS
        for life in LIVES
        if life not in UNKNOWN_TO.get(peer.alias, ())
    ],
)
def test_processed_jobs_leave_the_same_keys_as_with_a_node_worker(pair: Pair, peer: Peer, life: str) -> None:
    pair.add(LIVES[life])
    pair.live()
    assert "\n".join(pair.differences()) == ""


#: Jobs that are added one after the other, each when the one before has ended. The one with a backoff is promoted.
ENDS = [
    job("return:1"),
    job("fail"),
    job("fail:1", attempts=2),
    job("fail:1", attempts=2, backoff=HOUR),
    job("return:1", removeOnComplete=True),
    job("fail", removeOnFail=True),
    job("return:1", delay=30),
]


@each_peer_of("bull")
@pytest.mark.parametrize("beside", [[], [job("return:1", delay=HOUR)]], ids=["alone", "beside a delayed job"])
def test_a_queue_is_drained_when_it_is_with_a_node_worker(pair: Pair, peer: Peer, beside: list[dict[str, Any]]) -> None:
    """Of BullMQ, test_lives.py compares all events."""
    pair.add(beside)
    for side in ("left", "right"):
        pair.node.call("listen", queue=f"{side}-{pair.prefix}")
        with pair.working(side) as queue:
            for number, one in enumerate(ENDS, 1):
                drained = _heard(pair, side).count("drained")
                pair.node.call("add", queue=queue.name, jobs=[one])
                if "backoff" in one["opts"]:
                    _promote_retry(pair, queue, side, drained)
                wait_until(lambda number=number, side=side: _has_ended(pair, side, number), "the job to end")
    assert _heard(pair, "left") == _heard(pair, "right")


def _promote_retry(pair: Pair, queue: BullQueue, side: str, drained: int) -> None:
    """Promotes the job that waits for its second attempt, when what its first one has published is heard."""

    def waiting() -> list[str]:
        return [one.id for one in queue.page("delayed") if one.attempts_made == 1]

    wait_until(waiting, "the job to be delayed")
    wait_until(lambda: _heard(pair, side).count("drained") > drained, "the queue to be drained")
    queue.promote(*waiting())


#: Jobs with the number of their attempts: Bull 1 publishes the end of each.
ATTEMPTS = [
    *[(job(f"return:{value}"), 1) for value in ("1", "0", "null", '""', "false", '"x"', "[]", '{"a":[1,"é/b"]}')],
    *[(job("fail"), 1), (job("fail:2", attempts=3), 3), (job("fail:1", attempts=2, backoff=30), 2)],
]


@each_peer_of("bull-1.1.3")
def test_the_ends_of_attempts_are_published_as_by_bull_1(pair: Pair, peer: Peer) -> None:
    said = {}
    for side in ("left", "right"):
        name, attempts = f"{side}-{pair.prefix}", 0
        pair.node.call("listen", queue=name, events=["completed", "failed"])
        with published(pair.client, pair.prefix, name) as heard, pair.working(side):
            for one, more in ATTEMPTS:
                attempts += more
                pair.node.call("add", queue=name, jobs=[one])
                wait_until(
                    lambda name=name, attempts=attempts: len(pair.node.events(source="queue", queue=name)) == attempts,
                    "the end of the last attempt to be published",
                )
        said[side] = [_end_of(channel, message) for channel, message in heard if channel.startswith(("comp", "fail"))]
    assert said["left"] == said["right"]


def _end_of(channel: str, message: str) -> tuple[str, dict[str, Any], Any]:
    """A message of Bull 1 about the end of an attempt, without what differs on purpose (docs/concepts/dialects.md)."""
    _, described, *result = json.loads(message)
    described["stacktrace"] = len(described["stacktrace"])
    del described["timestamp"]
    event = channel.partition("@")[0]
    return event, described, result[0] or None if event == "completed" else None


def _heard(pair: Pair, side: str) -> list[str]:
    """What another process hears about the ends of jobs."""
    events = pair.node.events(source="queue", queue=f"{side}-{pair.prefix}")
    return [event["event"] for event in events if event["event"] in ("completed", "failed", "drained")]


def _has_ended(pair: Pair, side: str, number: int) -> bool:
    """Whether `number` jobs have ended. Bull publishes `drained` after the end of each."""
    heard = _heard(pair, side)
    return heard.count("completed") + heard.count("failed") == number and heard[-1] == "drained"
