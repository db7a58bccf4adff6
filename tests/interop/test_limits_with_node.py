"""The limiter of Bull 3 and 4: workers of Node and ours start and delay the same jobs, and write the same keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from redis import Redis

from spark_bull.core.clock import DELAYED_SCALE
from spark_bull.core.model.jobs import NewJob
from spark_bull.core.model.limits import Limiter
from spark_bull.core.queue.bull_queue import BullQueue
from tests.support.jobs import HOUR
from tests.support.node import NodePeer, each_peer_of
from tests.support.wait import wait_until
from tests.support.worker import OurWorker

each_bull = each_peer_of("bull")

pytestmark = pytest.mark.interop

WHOLE = Limiter(2, HOUR)
BY_GROUP = Limiter(2, HOUR, "tenant")
#: Ids, as a queue of Node with `groupKey` makes them: the group is behind the last colon.
IDS = ["1:a", "2:a", "3:a", "4:b", "5:a", "6", "7:c:b", "8:b", "9:"]


def limiter_keys(client: Redis, queue: BullQueue) -> dict[str, Any]:
    """The counters, delayed jobs and index of a limiter; lifetimes in hours."""
    base = queue.handle.keys.base
    found: dict[str, Any] = {}
    for key in client.scan_iter(match=f"{base}limiter*"):
        name, kind = key.decode().removeprefix(base), client.type(key)
        if kind == b"string":
            found[name] = (client.get(key), round(client.pttl(key) / HOUR))
        elif kind == b"set":
            found[name] = client.smembers(key)
        else:
            found[name] = {i: limited.decode().removeprefix(base) for i, limited in client.hgetall(key).items()}
    return found


def delayed_jobs(client: Redis, queue: BullQueue) -> list[tuple[bytes, float, int]]:
    """The delayed jobs: id, hours until they are due, and the low bits of the score; by hours and id.

    Of two groups, the jobs that are due after as many hours differ by ms only, by the clock of the process that delayed
    them.
    """
    now = queue.handle.connection.now_ms()
    scores = client.zrange(queue.handle.keys["delayed"], 0, -1, withscores=True)
    jobs = [
        (job_id, round((score / DELAYED_SCALE - now) / HOUR, 1), int(score) % DELAYED_SCALE) for job_id, score in scores
    ]
    return sorted(jobs, key=lambda job: (job[1], job[0]))


def all_keys(client: Redis, queue: BullQueue) -> dict[str, Any]:
    """What a limiter has changed."""
    keys = queue.handle.keys
    return {
        **{state: sorted(job.id for job in queue.page(state)) for state in ("completed", "wait", "active")},
        "delayed": delayed_jobs(client, queue),
        "limiter": limiter_keys(client, queue),
        "priority": client.zrange(keys["priority"], 0, -1, withscores=True),
        "jobs": {job_id: client.hmget(keys.job(job_id), "delay", "priority", "attemptsMade") for job_id in IDS},
    }


def counters(client: Redis, queue: BullQueue) -> list[bytes]:
    return [key for key in client.keys(f"{queue.handle.keys.base}limiter*") if client.type(key) == b"string"]


def process_both(
    theirs: NodePeer, queues: Sequence[BullQueue], limiter: Limiter, left_over: int = 0, **ours: int
) -> None:
    """Node's worker processes the first queue, ours the second one, in which `left_over` jobs go on waiting."""
    left, right = queues

    def has_ended(queue: BullQueue, waiting: int = 0) -> bool:
        counts = queue.counts()
        return counts["wait"] == waiting and not counts["active"]

    theirs.call("process", queue=left.name, concurrency=1, opts={"limiter": limiter.given})
    wait_until(lambda: has_ended(left), "Node to start, delay or lose the jobs")
    theirs.call("stop", queue=left.name)
    with OurWorker(right.handle, limiter=limiter, **ours):
        wait_until(lambda: has_ended(right, left_over), "our worker to start or delay the jobs")


@pytest.fixture
def queues(open_queue: Callable[..., BullQueue]) -> list[BullQueue]:
    return [open_queue(side, "bull") for side in ("left", "right")]


@each_bull
@pytest.mark.parametrize("limiter", [WHOLE, BY_GROUP], ids=["whole", "by group"])
@pytest.mark.parametrize("chunk_size", [1, 4])
def test_jobs_over_a_limit_are_delayed_as_by_node(
    theirs: NodePeer, queues: list[BullQueue], client: Redis, limiter: Limiter, chunk_size: int
) -> None:
    started = {WHOLE: ["2:a", "5:a"], BY_GROUP: ["1:a", "2:a", "4:b", "6", "7:c:b", "9:"]}[limiter]

    def both_have(jobs: Iterable[str], **properties: Any) -> None:
        for queue in queues:
            queue.add_many(NewJob({"$behaviour": "return:1"}, job_id=job_id, **properties) for job_id in jobs)

    if limiter is WHOLE:
        both_have(["5:a"], priority=2)
        both_have(["2:a"], priority=1)
    both_have(IDS)
    process_both(theirs, queues, limiter, chunk_size=chunk_size)
    left, right = (all_keys(client, queue) for queue in queues)
    assert left == right
    assert left["completed"] == started
    assert len(left["delayed"]) == len(IDS) - len(started)

    # A job that is due runs if the period is over, before jobs that come later; as long as others are delayed, those
    # are delayed, too.
    for queue in queues:
        first, second = (job_id.decode() for job_id, _, _ in delayed_jobs(client, queue)[:2])
        client.delete(*counters(client, queue))
        for job_id in (first, second):
            theirs.call("promote", queue=queue.name, jobId=job_id)
    both_have(["10:a", "11:b", "12:a"])
    process_both(theirs, queues, limiter, chunk_size=chunk_size)
    left, right = (all_keys(client, queue) for queue in queues)
    assert left == right
    assert {first, second} <= {*left["completed"]}


@each_bull
def test_with_bounce_back_jobs_wait_where_node_loses_them(
    theirs: NodePeer, queues: list[BullQueue], client: Redis
) -> None:
    """Node removes such a job from `active` without putting it anywhere else; ours stays in `wait`."""
    for queue in queues:
        queue.add_many(NewJob({"$behaviour": "return:1"}, job_id=job_id) for job_id in IDS[:4])
    process_both(theirs, queues, Limiter(2, HOUR, bounce_back=True), left_over=2)
    assert [limiter_keys(client, queue) for queue in queues] == [{"limiter": (b"2", 1)}] * 2
    counts = [queue.counts() for queue in queues]
    assert [(one["completed"], one["delayed"], one["wait"]) for one in counts] == [(2, 0, 0), (2, 0, 2)]
