"""Node libraries and ours on the queues of a Redis Cluster. One has the name of a shard."""

from __future__ import annotations

from collections.abc import Callable

from spark_bull import BullQueue, NewJob, Promoter
from tests.support.node import NodePeer, NodeProcess, Peer, each_peer_of
from tests.support.redis_servers import RedisCluster
from tests.support.wait import wait_until
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
