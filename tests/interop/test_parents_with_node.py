"""Parents and children of flows: the same happens, whether Node or we process which of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis import Redis

from spark_bull.core.dialects.terms import ON_FAILURE
from spark_bull.core.errors import WaitingForChildren
from spark_bull.core.model.jobs import NewJob
from spark_bull.core.model.limits import WorkSettings
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.work.claim import work
from spark_bull.run.job.job_runner import JobFunction
from spark_bull.run.job.running_job import RunningJob
from tests.support.node import NodePeer, each_peer_of
from tests.support.wait import wait_until
from tests.support.worker import OurWorker

StartNode = Callable[..., NodePeer]

each_bullmq = each_peer_of("bullmq")

pytestmark = pytest.mark.interop


@pytest.fixture
def open_queue(redis_url: str, prefix: str) -> Iterator[Callable[[str], BullQueue]]:
    opened: list[BullQueue] = []

    def open_(name: str) -> BullQueue:
        opened.append(BullQueue(name, url=redis_url, prefix=prefix, protocol="bullmq"))
        return opened[-1]

    yield open_
    for queue in opened:
        queue.close()


def part(job_id: str, queue: str, behaviour: str = "", children: Any = (), **opts: Any) -> dict[str, Any]:
    """A node of a flow, whose job does what tests/node/behaviours.js says."""
    return {
        "name": "part",
        "queueName": queue,
        "data": {"$behaviour": behaviour},
        "opts": {"jobId": job_id, **opts},
        "children": list(children),
    }


@each_bullmq
def test_a_processor_reads_the_values_and_failures_of_children(
    theirs: NodePeer, open_queue: Callable[[str], BullQueue], prefix: str
) -> None:
    parents, children = open_queue("parents"), open_queue("children")
    given = {"a": '{"sum":[1,"é"]}', "b": "null", "c": '"7"'}
    theirs.call(
        "flow",
        flow=part(
            "p",
            "parents",
            children=[
                *(part(name, "children", f"return:{value}") for name, value in given.items()),
                part("d", "children", "fail", ignoreDependencyOnFailure=True),
                part("e", "children", "fail", removeDependencyOnFailure=True),
            ],
        ),
    )
    theirs.call("process", queue="children")
    read: list[Any] = []

    def parent(job: RunningJob) -> None:
        read.extend([job.children_values(), job.children_failures()])

    with OurWorker(parents.handle, parent):
        wait_until(lambda: parents.counts()["completed"] == 1, "the parent")
    key = children.handle.keys.job
    values = {key("a"): {"sum": [1, "é"]}, key("b"): None, key("c"): "7"}
    assert read == [values, {key("d"): "scripted failure 1"}]
    assert values == theirs.call("invoke", queue="parents", jobId="p", method="getChildrenValues")
    assert read[1] == theirs.call("invoke", queue="parents", jobId="p", method="getIgnoredChildrenFailures")
    assert [parents.children_values("p"), parents.children_failures("p")] == read
    assert parents.children_values("none") == {}


def in_kind(kind: str, function: Callable[[RunningJob], Any]) -> JobFunction:
    async def coroutine(job: RunningJob) -> Any:
        await asyncio.sleep(0)
        return function(job)

    return coroutine if kind == "coroutine" else function


@each_bullmq
@pytest.mark.parametrize("kind", ["main thread", "coroutine"])
def test_a_processor_waits_for_a_child_that_node_processes(
    theirs: NodePeer, open_queue: Callable[[str], BullQueue], kind: str
) -> None:
    parents = open_queue("parents")

    def parent(job: RunningJob) -> Any:
        values = job.children_values()
        if not values:
            job.add_child(NewJob({"$behaviour": "return:7"}, "child"), queue="children")
            raise WaitingForChildren
        return list(values.values())

    job_id = parents.add({})
    concurrency = 1 if kind == "main thread" else 3
    with OurWorker(parents.handle, in_kind(kind, parent), concurrency=concurrency):
        wait_until(lambda: parents.counts()["waiting-children"] == 1, "the parent to wait")
        theirs.call("process", queue="children")
        wait_until(lambda: parents.counts()["completed"] == 1, "the parent to complete")
    job = parents.job(job_id)
    assert (job.parsed("returnvalue"), job.attempts_made, job.attempts_started) == ([7], 1, 2)


@each_bullmq
def test_a_child_is_added_as_node_adds_it(
    theirs: NodePeer, open_queue: Callable[[str], BullQueue], client: Redis, prefix: str
) -> None:
    parents, children = open_queue("parents"), open_queue("children")
    job_id = parents.add({})
    (claimed,) = work(parents.handle, WorkSettings("slot"), None, 1).jobs
    job, ids = RunningJob(claimed, parents.handle), []

    def stored(child_id: str) -> dict[bytes, Any]:
        fields = client.hgetall(children.handle.keys.job(child_id))
        del fields[b"timestamp"]
        return fields | {name: json.loads(fields[name]) for name in (b"opts", b"parent")}

    for on_failure, option in ON_FAILURE.items():
        opts = {
            "parent": {"id": job_id, "queue": f"{prefix}:parents"},
            "attempts": 3,
            **({option: True} if option else {}),
        }
        ids += theirs.call("add", queue="children", jobs=[{"name": "child", "data": {"n": 1}, "opts": opts}])
        ids.append(job.add_child(NewJob({"n": 1}, "child", attempts=3), queue="children", on_failure=on_failure))
        assert stored(ids[-1]) == stored(ids[-2])
    keys = {children.handle.keys.job(child_id).encode() for child_id in ids}
    assert client.smembers(parents.handle.keys.children(job_id)) == keys
