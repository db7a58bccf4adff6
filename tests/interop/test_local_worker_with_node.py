"""A LocalWorker and a Node worker on one queue: each job is processed once."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

import pytest

from spark_bull.model.jobs import NewJob
from spark_bull.process.local_worker import LocalWorker
from spark_bull.queue.bull_queue import BullQueue
from spark_bull.worker.job.running_job import RunningJob
from tests.support.node_peer import NodePeer
from tests.support.wait import PATIENCE_S, wait_until

pytestmark = pytest.mark.interop


def test_a_local_worker_and_node_process_each_job_of_a_queue_once(
    node: Callable[..., NodePeer], redis_url: str, prefix: str
) -> None:
    peer, ours, both = node("bullmq-6.7.0", prefix=prefix), list[str](), Event()

    def processor(job: RunningJob) -> str:
        ours.append(job.id)
        both.wait(PATIENCE_S)
        return "ours"

    with BullQueue("shared", url=redis_url, prefix=prefix, protocol="bullmq") as queue:

        def add(count: int) -> None:
            queue.add_many(NewJob({"$behaviour": "return:1"}) for _ in range(count))

        with LocalWorker("shared", processor, slots=2, url=redis_url, prefix=prefix) as worker:
            add(2)
            wait_until(lambda: len(ours) == 2, "each slot to have a job")
            peer.call("process", queue="shared", concurrency=5)
            add(50)
            wait_until(lambda: queue.counts()["completed"] == 50, "Node to process what our slots have no place for")
            peer.call("stop", queue="shared")
            both.set()
            add(10)
            wait_until(lambda: queue.counts()["completed"] == 62, "our slots to process the others")
            assert worker.status().completed == 12
        ended = queue.page("completed")
        assert sorted(job.id for job in ended if job.returnvalue == "ours") == sorted(ours)
        assert {(job.attempts_made, job.attempts_started) for job in ended} == {(1, 1)}
