"""Graphs and sequences of jobs that Node and we process at the same time."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, StringType, StructType
from redis import Redis

from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.run.job.running_job import RunningJob
from spark_bull.run.services.promoter import Promoter
from tests.support.forked_programs import ForkedProcess, promote, work
from tests.support.job_order import check_order, graph_sink, keep_events, orders, random_graph, rows_of
from tests.support.node import PEERS, NodePeer, Peer, each_peer_of
from tests.support.wait import wait_until
from tests.support.without_spark import Sink
from tests.support.worker import OurWorker

StartNode = Callable[..., NodePeer]

BULLMQ = [peer for peer in PEERS if peer.dialect == "bullmq"]
each_bullmq = each_peer_of("bullmq")

pytestmark = pytest.mark.interop


def options(url: str, prefix: str) -> dict[str, str]:
    return {"url": url, "prefix": prefix, "protocol": "bullmq"}


@each_bullmq
@pytest.mark.parametrize("policy", ["wait", "fail", "ignore", "remove"])
def test_node_s_failures_do_to_dependents_what_the_option_says(
    theirs: NodePeer, queue: BullQueue, client: Redis, redis_url: str, prefix: str, policy: str
) -> None:
    graph = {"d": ["c"], "c": ["a"], "b": ["a"], "a": []}
    data = {"a": '{"$behaviour": "fail"}', "b": '{"$behaviour": "values"}'}
    graph_sink({**options(redis_url, prefix), "onFailure": policy}, rows_of(graph, data)).commit()
    with Promoter(redis_url, queues=["q"], prefix=prefix):
        theirs.call("process", queue="q")
        wait_until(lambda: queue.counts()["failed"] > 0, "the first job to fail")
        if policy == "wait":
            assert queue.counts()["waiting-children"] == 3
            client.hset(queue.handle.keys.job("a"), "data", '{"$behaviour": "return:7"}')
            queue.retry("a")
        wait_until(lambda: queue.counts()["completed"] + queue.counts()["failed"] == 4, "all jobs to end")
        jobs = {job_id: queue.job(job_id) for job_id in graph}
    ends = {job_id: job.state for job_id, job in jobs.items() if job}
    failed = {"wait": set(), "fail": {*graph}, "ignore": {"a"}, "remove": {"a"}}[policy]
    assert {job_id for job_id, state in ends.items() if state == "failed"} == failed
    key, found = f"{prefix}:q:a", jobs["b"]
    assert found
    if policy == "fail":
        assert f"child {key} failed" in str(found.failed_reason)
    else:
        values, failures = found.parsed("returnvalue")
        assert values == ({key: 7} if policy == "wait" else {})
        assert [*failures] == ([key] if policy == "ignore" else [])
    assert [*client.scan_iter(match=f"{prefix}:q:spark:relay*")] == []


def take_a_ms(job: RunningJob) -> None:
    time.sleep(0.001)


@each_bullmq
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(100, 110))])
def test_each_job_runs_once_after_all_it_depends_on_while_workers_are_killed(
    client: Redis, redis_url: str, prefix: str, node: StartNode, peer: Peer, seed: int
) -> None:
    """Node's worker, ours and the promoter are killed again and again, until all jobs have completed."""
    jobs, url = 1_000, redis_url
    graph = random_graph(Random(seed), jobs)
    graph_sink(options(url, prefix), rows_of(graph)).commit()
    with BullQueue("q", url=url, prefix=prefix) as queue:
        for part in range(1, 5):
            theirs = node(peer.alias, prefix=prefix, alone=True)
            with (
                ForkedProcess(promote, url, prefix, check_ms=500, max_stalled=1_000),
                ForkedProcess(work, url, prefix, "bullmq", take_a_ms, chunk_size=5, lock_ms=500),
            ):
                theirs.call("process", queue="q", concurrency=4)
                keep_events(client, queue, 100 * jobs)
                # Node's worker looks for stalled jobs when it starts, and nobody does for 30 s after it.
                client.delete(queue.handle.keys["stalled_check"])
                wait_until(lambda done=part: queue.counts()["completed"] >= done * jobs // 4, "a part of the jobs")
                theirs.kill()
                # Locks of those that are alive are extended.
                for job in queue.page("active"):
                    client.pexpire(queue.handle.keys.lock(job.id), 1_000)
        assert queue.counts()["completed"] == jobs
        check_order(client, queue, graph)
    assert [*client.scan_iter(match=f"{prefix}:q:spark:relay*")] == []


ROWS = StructType().add("key", StringType()).add("n", IntegerType()).add("$behaviour", StringType())
#: Behaviours of jobs: most complete, some fail once or for good.
BEHAVIOURS = ("return:1",) * 6 + ("fail:1", "fail", "sleep:1")


def random_rows(random: Random, keys: int, first: int, count: int) -> list[dict[str, Any]]:
    return [
        {"key": f"key-{random.randrange(keys)}", "n": n, "$behaviour": random.choice(BEHAVIOURS)}
        for n in range(first, first + count)
    ]


def run_sequences(client: Redis, url: str, prefix: str, node: StartNode, peers: list[Peer], *counts: int) -> None:
    """Several writes of rows with random keys, while workers of Node and ours process them."""
    writes, rows, keys = counts
    random, expected = Random(rows), defaultdict(list)
    options = {"url": url, "prefix": prefix, "queue": "q", "sequenceBy": "key", "attempts": "2", "chunkSize": "50"}
    with BullQueue("q", url=url, prefix=prefix, protocol="bullmq") as queue:
        for peer in peers:
            node(peer.alias, prefix=prefix).call("process", queue="q", concurrency=4)
        keep_events(client, queue, 100 * writes * rows)
        with OurWorker(queue.handle, chunk_size=20), OurWorker(queue.handle, concurrency=4):
            for number in range(writes):
                made = random_rows(random, keys, number * rows, rows)
                for row in made:
                    expected[row["key"]].append(row["n"])
                sink = Sink(options, ROWS)
                for start in range(0, rows, max(1, rows // 3)):
                    sink.task(made[start : start + max(1, rows // 3)])
                sink.commit()
            wait_until(
                lambda: queue.counts()["completed"] + queue.counts()["failed"] == writes * rows, "all jobs to end"
            )
        assert orders(client, queue, lambda data: data["key"]) == expected


@each_peer_of("bullmq")
def test_the_jobs_of_a_key_run_one_after_the_other_whoever_processes_them(
    client: Redis, redis_url: str, prefix: str, node: StartNode, peer: Peer
) -> None:
    run_sequences(client, redis_url, prefix, node, [peer], 4, 60, 12)


@pytest.mark.soak
def test_ten_thousand_sequences_of_ten_jobs(client: Redis, redis_url: str, prefix: str, node: StartNode) -> None:
    """With workers of both versions at once."""
    run_sequences(client, redis_url, prefix, node, BULLMQ, 10, 10_000, 10_000)
