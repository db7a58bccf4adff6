"""Node workers attach to the shards of a logical queue, and Node adds jobs to them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from pyspark.sql.types import IntegerType, StringType, StructType

from spark_bull import BullQueue, EmbeddedRedis, shard_names
from spark_bull.spark.dispatch.features.shards import shard_of
from tests.support.node import NEWEST, PEERS, NodePeer, Peer
from tests.support.wait import wait_until
from tests.support.without_spark import Sink

ROWS = StructType().add("key", StringType()).add("n", IntegerType())


def has_completed(queue: BullQueue, jobs: int) -> bool:
    return queue.counts()["completed"] == jobs


@pytest.mark.parametrize("peer", [peer for peer in PEERS if peer.alias in NEWEST], ids=str)
def test_a_node_worker_of_each_shard_processes_the_jobs_of_the_logical_queue(
    node: Callable[..., NodePeer], own_redis: Callable[..., EmbeddedRedis], peer: Peer
) -> None:
    urls = [own_redis().url for _ in range(2)]
    options = {"url": " ".join(urls), "protocol": peer.dialect, "queue": "mail", "shards": "2", "shardBy": "key"}
    sink = Sink(options, ROWS)
    sink.task([{"key": f"k{n}", "n": n} for n in range(10)])
    sink.commit()
    parts = [BullQueue(name, url=options["url"], protocol=peer.dialect) for name in shard_names("mail", 2)]
    for number, part in enumerate(parts):
        ours = {n for n in range(10) if shard_of(f'["k{n}"]', 2) == number}
        theirs = node(peer.alias, prefix="bull", url=urls[number])
        theirs.call("add", queue=part.name, jobs=[{"name": "send", "data": {"n": -1}, "opts": {}}])
        theirs.call("process", queue=part.name)
        wait_until(partial(has_completed, part, len(ours) + 1), "Node to process a shard")
        assert {job.data["n"] for job in part.page("completed", stop=100)} == ours | {-1}
