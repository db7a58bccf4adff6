"""Batches of jobs with a callback: they are stored as flows of Node, which may remove the callback."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from pyspark.sql.types import IntegerType, StringType, StructType

from spark_bull.core.dialects.terms import ON_FAILURE
from spark_bull.core.queue.bull_queue import BullQueue
from tests.support.node import NodePeer, each_peer_of
from tests.support.steps import Steps
from tests.support.two_sides import Answers
from tests.support.without_spark import Sink

pytestmark = pytest.mark.interop


@each_peer_of("bullmq")
@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_batch_is_stored_as_a_flow_of_node(steps: Steps, delivery: str) -> None:
    callback = {"name": "sum", "data": {"n": 99}, "opts": {"priority": 3, "attempts": 2}}
    on_finish = json.dumps({"queue": "other", **callback})
    schema = StructType().add("n", IntegerType()).add("jobId", StringType())
    given = {"url": steps.url, "prefix": steps.prefixes[1], "queue": "main", "name": "x", "chunkSize": "2"}
    given |= {"delivery": delivery, "onFinish": on_finish, "jobColumns": "jobId", "bullmqVersion": steps.version}
    for policy, option in ON_FAILURE.items():
        opts = {option: True} if option else {}
        children = [
            {"queueName": "main", "name": "x", "data": {"n": n}, "opts": {"jobId": f"job-{n}", **opts}}
            for n in range(5)
        ]
        steps.begin()
        steps.node("flow", flow={"queueName": "other", **callback, "children": children})
        write = Sink({**given, "onFailure": policy}, schema)
        write.task([{"n": n, "jobId": f"job-{n}"} for n in range(5)])
        write.commit()
        assert steps.differences(Answers()) == []


@each_peer_of("bullmq")
def test_node_can_remove_a_callback_before_all_jobs_are_added(
    theirs: NodePeer, queue: BullQueue, open_queue: Callable[..., BullQueue], redis_url: str, prefix: str
) -> None:
    """Its dependencies contain a name that is no job."""
    given = {"url": redis_url, "prefix": prefix, "queue": "q", "delivery": "at-least-once"}
    write = Sink({**given, "onFinish": '{"queue": "report"}'}, StructType().add("n", IntegerType()))
    write.task([{"n": 1}, {"n": 2}])
    report = open_queue("report")
    (job,) = report.page("waiting-children")
    theirs.call("remove", queue="report", jobId=job.id)
    assert not any(count for one in (queue, report) for count in one.counts().values())
    write.task([{"n": 3}])
    write.commit()
    assert (queue.counts()["wait"], report.job(job.id)) == (1, None)
