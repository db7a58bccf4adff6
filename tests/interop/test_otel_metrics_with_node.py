"""The metrics of OpenTelemetry that Node exports and those that we export, of the same jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spark_bull import BullQueue, NewJob
from tests.support.metrics import MetricRecorder, in_order
from tests.support.node import NodePeer, Peer, each_peer_of
from tests.support.wait import wait_until
from tests.support.worker import OurWorker

StartNode = Callable[..., NodePeer]

pytestmark = pytest.mark.interop

#: Jobs that end in each way that BullMQ records.
JOBS: list[dict[str, Any]] = [
    {"name": "plain", "data": {}, "opts": {}},
    {"name": "plain", "data": {}, "opts": {}},
    {"name": "again", "data": {"$behaviour": "fail:1"}, "opts": {"attempts": 2}},
    {"name": "later", "data": {"$behaviour": "fail:1"}, "opts": {"attempts": 2, "backoff": 1}},
    {"name": "bad", "data": {"$behaviour": "fail"}, "opts": {}},
    {"name": "delays", "data": {"$behaviour": "postpone:delay"}, "opts": {}},
    {"name": "limits", "data": {"$behaviour": "postpone:limit"}, "opts": {}},
    {"name": "returns", "data": {"$behaviour": "postpone:giveBack"}, "opts": {}},
    {"name": "waits", "data": {"$behaviour": "child:q;wait"}, "opts": {}},
]
#: The child of the last one is a further job.
COMPLETED, FAILED = len(JOBS), 1


@each_peer_of("bullmq")
def test_the_same_jobs_have_the_metrics_that_node_exports(
    node: StartNode, redis_url: str, prefix: str, peer: Peer
) -> None:
    theirs, recorder = node(peer.alias, prefix=prefix), MetricRecorder()
    theirs.call("measure")
    with BullQueue("q", url=redis_url, prefix=prefix, protocol="bullmq", meter=recorder.provider) as queue:
        theirs.call("add", queue="q", jobs=JOBS)
        assert theirs.call("exported") == [], "what is added is not recorded"
        theirs.call("process", queue="q")
        wait_until(lambda: has_ended(queue, 1), "Node's worker")
        theirs.call("stop", queue="q")

        queue.add_many(NewJob(job["data"], job["name"], opts=job["opts"]) for job in JOBS)
        assert recorder.exported() == []
        with OurWorker(queue.handle, meter=recorder.provider):
            wait_until(lambda: has_ended(queue, 2), "our worker")

        theirs.call("invoke", queue="q", method="recordJobCountsMetric")
        assert queue.record_counts() == queue.counts()
    expected = in_order(theirs.call("exported"))
    for metric in expected:
        for point in metric["points"]:
            # BullMQ 5 has the same in two attributes, one of them deprecated.
            point["attributes"].pop("bullmq.job.status", None)
    assert in_order(recorder.exported()) == expected
    assert {one["name"] for one in expected} == {
        *(f"bullmq.jobs.{state}" for state in ("completed", "failed", "delayed", "retried", "waiting")),
        *("bullmq.jobs.waiting_children", "bullmq.job.duration", "bullmq.queue.jobs"),
    }


def has_ended(queue: BullQueue, times: int) -> bool:
    counts = queue.counts()
    return (counts["completed"], counts["failed"]) == (times * COMPLETED, times * FAILED)
