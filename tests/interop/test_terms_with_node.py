"""Terms of jobs when only workers of Node process them, which know nothing of these, and a Promoter runs."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import NamedTuple

import pytest
from redis import Redis

from spark_bull import BullQueue, NewJob, Promoter
from spark_bull.core.clock import epoch_ms
from tests.support.node import NODE_DIRECTORY, NodePeer, Peer, each_peer_of
from tests.support.wait import wait_until

StartNode = Callable[..., NodePeer]

log = logging.getLogger(__name__)

#: A time that has passed.
PAST = 1
#: Jobs of one call of add_many.
BATCH = 10_000
#: How late a job may start at most after it has expired, ms.
MOST_LATE_MS = 2_000

pytestmark = pytest.mark.interop


class Expiring(NamedTuple):
    """A job that expires: its id, and when, ms since 1970."""

    id: str
    at: int


def add(queue: BullQueue, times: list[int | None]) -> list[Expiring]:
    """Adds jobs that expire at these times, or never; returns those that expire."""
    expiring: list[Expiring] = []
    for start in range(0, len(times), BATCH):
        some = times[start : start + BATCH]
        ids = queue.add_many(NewJob({"$behaviour": "return:1"}, expire_at=at) for at in some).ids
        expiring += [Expiring(job_id, at) for job_id, at in zip(ids, some, strict=True) if at is not None]
    return expiring


def finished(queue: BullQueue, count: int) -> Callable[[], bool]:
    return lambda: sum(queue.counts()[state] for state in ("completed", "failed")) == count


def fields(client: Redis, queue: BullQueue, jobs: list[Expiring]) -> Iterator[tuple[Expiring, str | None, int | None]]:
    """Reason of the failure and time of the start of each job."""
    for start in range(0, len(jobs), BATCH):
        some = jobs[start : start + BATCH]
        with client.pipeline(transaction=False) as pipe:
            for job in some:
                pipe.hmget(queue.handle.keys.job(job.id), "failedReason", "processedOn")
            for job, (reason, started) in zip(some, pipe.execute(), strict=True):
                yield job, reason and reason.decode(), started and int(started)


@each_peer_of("bull-1", "bull", "bullmq")
def test_node_runs_no_job_that_has_expired(
    peer: Peer, theirs: NodePeer, queue: BullQueue, client: Redis, redis_url: str, prefix: str
) -> None:
    """Half of the jobs that expire do so before the workers start, the others while they run."""
    random, jobs = Random(7), 600
    soon = epoch_ms() + 1_000
    times = [random.choice([None, None, PAST, soon + random.randrange(2_000)]) for _ in range(jobs)]
    gone = sum(at == PAST for at in times)
    with Promoter(redis_url, ["q"], prefix=prefix, protocol=peer.dialect, rescue=False) as promoter:
        expiring = add(queue, times)
        wait_until(lambda: promoter.done.expired >= gone, "the first jobs to expire")
        theirs.call("process", queue="q", concurrency=2)
        wait_until(finished(queue, jobs), "all jobs to end")
        counts = queue.counts()
        reasons = {job: reason for job, reason, _ in fields(client, queue, expiring)}
    assert {reason for reason in reasons.values() if reason} == {"expired"}
    assert all(reason == "expired" for job, reason in reasons.items() if job.at == PAST)
    assert counts["failed"] == sum(reason is not None for reason in reasons.values())


@each_peer_of("bull-1.1.3", "bull", "bullmq")
def test_node_fails_a_job_that_may_run_once_when_it_stalls(
    peer: Peer, theirs: NodePeer, queue: BullQueue, client: Redis, node: StartNode, prefix: str
) -> None:
    """Its worker has died: the job is active, and has no lock."""
    first = node(peer.alias, prefix=prefix, alone=True)
    # It answers before there is a job that ends it.
    first.call("process", queue="q", concurrency=1)
    job_id = queue.add({"$behaviour": "crash"}, delivery="at-most-once")
    wait_until(lambda: not first.process.alive, "the worker to die")
    assert queue.counts()["active"] == 1
    client.hset(queue.handle.keys.job(job_id), "data", '{"$behaviour":"return:1"}')
    client.delete(queue.handle.keys.lock(job_id), queue.handle.keys["stalled_check"])
    # As the first check of a worker marks it.
    client.sadd(queue.handle.keys["stalled"], job_id)
    theirs.call("process", queue="q", concurrency=1)
    wait_until(lambda: queue.counts()["failed"] == 1, "the job to fail")
    (failed,) = queue.page("failed")
    assert failed.failed_reason == "job stalled more than allowable limit"
    assert failed.returnvalue is None


@contextmanager
def quiet_worker(alias: str, url: str, prefix: str) -> Iterator[None]:
    """A worker of Node without events."""
    command = ["node", "quiet_worker.js", alias, url, prefix, "q", "100"]
    with subprocess.Popen(command, cwd=NODE_DIRECTORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        yield
        process.stdin.close()


@pytest.mark.soak
@each_peer_of("bull-4", "bullmq")
def test_no_job_among_a_million_starts_long_after_it_has_expired(
    peer: Peer, queue: BullQueue, client: Redis, redis_url: str, prefix: str
) -> None:
    random, jobs, every = Random(11), 1_000_000, 10
    with Promoter(redis_url, ["q"], prefix=prefix, protocol=peer.dialect, rescue=False):
        start = epoch_ms() + 60_000
        expiring = add(queue, [None if n % every else start + random.randrange(240_000) for n in range(jobs)])
        assert len(expiring) == jobs // every
        with quiet_worker(peer.alias, redis_url, prefix):
            wait_until(finished(queue, jobs), "all jobs to end", timeout=3_600)
        ended = list(fields(client, queue, expiring))
    late = [started - job.at for job, reason, started in ended if reason is None and started is not None]
    expired = sum(reason == "expired" for _, reason, _ in ended)
    log.info("%s: %d expired, %d started, the last one %d ms after its time", peer, expired, len(late), max(late))
    assert expired + len(late) == len(expiring)
    assert max(late) <= MOST_LATE_MS
