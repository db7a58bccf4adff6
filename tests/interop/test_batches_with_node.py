"""Batches of jobs with a callback: Node processes the jobs, or the callback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, StringType, StructType

from spark_bull.core.dialects.terms import ON_FAILURE
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.run.job.running_job import RunningJob
from tests.support.node import NodePeer, each_peer_of
from tests.support.steps import Steps
from tests.support.two_sides import Answers
from tests.support.wait import wait_until
from tests.support.without_spark import Sink
from tests.support.worker import OurWorker

ROWS = StructType().add("$behaviour", StringType())

pytestmark = pytest.mark.interop


@pytest.fixture
def queues(redis_url: str, prefix: str) -> Iterator[list[BullQueue]]:
    """The queue of the jobs, and that of the callbacks."""
    opened = [BullQueue(name, url=redis_url, prefix=prefix, protocol="bullmq") for name in ("q", "report")]
    yield opened
    for queue in opened:
        queue.close()


def sink(redis_url: str, prefix: str, behaviours: list[str], **options: str) -> Sink:
    """A write whose rows were staged."""
    on_finish = json.dumps({"queue": "report", "data": {"$behaviour": "return:7"}})
    given = {"url": redis_url, "prefix": prefix, "queue": "q", "chunkSize": "2", "onFinish": on_finish, **options}
    sink = Sink(given, ROWS)
    sink.task([{"$behaviour": behaviour} for behaviour in behaviours])
    return sink


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
@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_node_processes_the_jobs_of_a_batch(
    theirs: NodePeer, queues: list[BullQueue], redis_url: str, prefix: str, delivery: str
) -> None:
    _, report = queues
    read: list[Any] = []
    theirs.call("process", queue="q")

    def callback(job: RunningJob) -> None:
        read.extend([sorted(job.children_values().values()), list(job.children_failures().values())])

    with OurWorker(report.handle, callback):
        behaviours = [*(f"return:{n}" for n in range(7)), "fail"]
        sink(redis_url, prefix, behaviours, delivery=delivery, onFailure="ignore").commit()
        wait_until(lambda: report.counts()["completed"] == 1, "the callback")
    assert read == [list(range(7)), ["scripted failure 1"]]


@each_peer_of("bullmq")
def test_node_can_remove_a_callback_before_all_jobs_are_added(
    theirs: NodePeer, queues: list[BullQueue], redis_url: str, prefix: str
) -> None:
    """Its dependencies contain a name that is no job."""
    jobs, report = queues
    write = sink(redis_url, prefix, ["", ""], delivery="at-least-once")
    (job,) = report.page("waiting-children")
    theirs.call("remove", queue="report", jobId=job.id)
    assert not any(count for queue in (jobs, report) for count in queue.counts().values())
    write.task([{"$behaviour": ""}])
    write.commit()
    assert (jobs.counts()["wait"], report.job(job.id)) == (1, None)
