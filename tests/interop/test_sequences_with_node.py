"""Sequences of jobs whose members Node and we process at the same time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, StringType, StructType
from redis import Redis

from spark_bull.core.queue.bull_queue import BullQueue
from tests.support.job_order import keep_events, orders
from tests.support.node import PEERS, NodePeer, Peer, each_peer_of
from tests.support.wait import wait_until
from tests.support.without_spark import Sink
from tests.support.worker import OurWorker

StartNode = Callable[..., NodePeer]

BULLMQ = [peer for peer in PEERS if peer.dialect == "bullmq"]
ROWS = StructType().add("key", StringType()).add("n", IntegerType()).add("$behaviour", StringType())
#: Behaviours of jobs: most complete, some fail once or for good.
BEHAVIOURS = ("return:1",) * 6 + ("fail:1", "fail", "sleep:1")

pytestmark = pytest.mark.interop


def rows_of(random: Random, keys: int, first: int, count: int) -> list[dict[str, Any]]:
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
                made = rows_of(random, keys, number * rows, rows)
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
