"""Node libraries and ours on the queues of a Redis Cluster, and on the shards of a logical queue."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from pyspark.sql.types import IntegerType, StringType, StructType

from spark_bull import BullQueue, EmbeddedRedis, NewJob, OptionError, Promoter, shard_names
from spark_bull.spark.dispatch.features.routing import shard_of
from tests.support.node import NEWEST, PEERS, NodePeer, NodeProcess, Peer, each_peer_of
from tests.support.redis_servers import RedisCluster
from tests.support.wait import wait_until
from tests.support.without_spark import Sink
from tests.support.worker import OurWorker

#: Prefix and name. BullMQ allows no colon in a name.
NAMES = [("bull", "{mail}"), ("bull", "mail{0}"), ("bull", "{mail}.0"), ("{bull}", "mail"), ("bull", "{mail}:0")]


# Bull 1 does not run on a cluster.
@each_peer_of("bull", "bullmq")
def test_each_side_processes_the_jobs_of_the_other(
    cluster: RedisCluster, node_processes: Callable[[str, str], NodeProcess], peer: Peer
) -> None:
    for start, name in NAMES[: 5 if peer.dialect == "bull" else 4]:
        prefix = f"{start}-{peer.alias}"
        home = cluster.home(f"{prefix}:{name}:")
        other = next(server for server in cluster.primaries if server is not home)
        process = node_processes(peer.alias, f"{other.url}?cluster")
        with (
            NodePeer(peer.alias, other.url, prefix, process=process) as theirs,
            BullQueue(name, url=other.url, prefix=prefix, protocol=peer.dialect) as queue,
        ):
            theirs.call("add", queue=name, jobs=[{"name": "send", "data": {"n": n}, "opts": {}} for n in range(3)])
            with OurWorker(queue.handle, lambda job: job.data["n"], chunk_size=2):
                wait_until(lambda: queue.counts()["completed"] == 3, "our worker to process the jobs of Node")
            theirs.call("process", queue=name)
            ids = queue.add_many(NewJob({"$behaviour": f"return:{n}"}, "send", delay=20 * n) for n in range(3)).ids
            with Promoter(other.url, [name], prefix=prefix, protocol=peer.dialect):
                wait_until(lambda: queue.counts()["completed"] == 6, "Node to process our jobs")
            assert [queue.job(one).parsed("returnvalue") for one in ids] == [0, 1, 2]


def test_a_name_with_a_colon_is_refused_by_bullmq(cluster: RedisCluster) -> None:
    with BullQueue("{mail}:0", url=cluster.url, protocol="bullmq") as queue, pytest.raises(OptionError, match=":"):
        queue.add({})


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
