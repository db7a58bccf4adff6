"""The doctor and BullMQ's `removeOrphanedJobs` take the same jobs for orphaned ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.ops.cli.doctor.finding import Finding
from spark_bull.ops.cli.doctor.leftovers import leftovers
from tests.support.jobs import HOUR
from tests.support.node import NodePeer
from tests.support.wait import wait_until

pytestmark = pytest.mark.interop


def job(name: str, **opts: Any) -> dict[str, Any]:
    return {"name": name, "data": {}, "opts": opts}


def orphans_of(queue: BullQueue) -> Finding:
    return next(finding for finding in leftovers([queue.handle], removes=True) if finding.check == "orphans")


def test_node_and_the_doctor_remove_the_same_jobs(
    node: Callable[..., NodePeer], client: Redis, redis_url: str, prefix: str
) -> None:
    peer = node("bullmq-6.7.0", prefix=prefix)
    child = {"name": "child", "queueName": "mail", "data": {}}
    peer.call("add", queue="mail", jobs=[job("plain", jobId=f"job-{n}") for n in range(4)])
    peer.call("add", queue="mail", jobs=[job("late", delay=HOUR), job("first", priority=3)])
    peer.call("add", queue="mail", jobs=[job("once", deduplication={"id": "twin"}, jobId="lost")])
    peer.call("process", queue="mail")
    queue = BullQueue("mail", url=redis_url, prefix=prefix)
    wait_until(lambda: queue.counts()["completed"] == 6, "the jobs to complete")
    peer.call("stop", queue="mail")
    peer.call("flow", flow={"name": "parent", "queueName": "mail", "data": {}, "children": [child, child]})
    peer.call("add", queue="mail", jobs=[job("once", deduplication={"id": "twin"}, jobId="alone")])
    queue.upsert_scheduler("yearly", pattern="0 0 1 1 *")
    assert orphans_of(queue).level == "ok"
    client.lrem(queue.handle.keys["wait"], 1, "alone")
    client.zrem(queue.handle.keys["completed"], "job-2")
    client.rpush(queue.handle.keys.logs("job-2"), "a row")
    found = orphans_of(queue)
    assert found.found.endswith("2 jobs, alone, job-2")
    assert found.repair is not None
    assert found.repair.run() == "removed 2 jobs"
    assert client.get(queue.handle.keys.deduplication("twin")) is None
    assert peer.call("invoke", queue="mail", method="removeOrphanedJobs") == 0
    assert client.exists(queue.handle.keys.job("job-2"), queue.handle.keys.logs("job-2")) == 0
    peer.call("process", queue="mail")
    wait_until(lambda: queue.counts()["completed"] == 5 + 3, "the flow to complete")
