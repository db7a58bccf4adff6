"""Queues in several slots of a Redis Cluster of three nodes, each reached by the address of any node."""

from __future__ import annotations

import os
import pickle
import re
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from redis import Redis
from redis.crc import key_slot

from spark_bull import BullQueue, ConnectionLost, EmbeddedRedis, NewJob, OptionError, Promoter, RedisUnavailable
from spark_bull.core.options.parse import parse_options
from spark_bull.core.options.parts import Options
from spark_bull.core.options.redis_settings import RedisSettings
from spark_bull.core.options.table import QueueOptions, ReadOptions
from spark_bull.core.queue.handle.handle import opening
from spark_bull.core.queue.manage.manage import remove
from spark_bull.core.queue.monitor.find import find_queues, scan_keys, workers
from spark_bull.core.store.connection import Connection
from spark_bull.core.store.round_trips import RoundTrips, run_together
from spark_bull.ops.cli import main
from spark_bull.ops.cli.status import PROBLEMS
from spark_bull.ops.prometheus.collect import Export, collect
from tests.integration.conftest import Run
from tests.support.redis_servers import RedisCluster, is_cluster_ready, rules
from tests.support.wait import wait_until
from tests.support.worker import OurWorker

NAMES = [f"{{q{n}}}" for n in range(6)]
DAY_MS = 86_400_000


def connection(url: str, retry_ms: int = 20_000) -> Connection:
    return Connection(RedisSettings(url, retry_ms=retry_ms))


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    return f"test-{request.node.name}"


@pytest.fixture
def queues(cluster: RedisCluster, prefix: str) -> list[BullQueue]:
    """A queue per name; each is opened with the address of another node."""
    urls = [server.url for server in cluster.primaries]
    return [BullQueue(name, url=urls[n % 3], prefix=prefix, protocol="bullmq") for n, name in enumerate(NAMES)]


@pytest.fixture
def run(cluster: RedisCluster, prefix: str, capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(capsys, cluster.url, prefix)


def test_an_announced_address_that_is_not_known_here_is_named_at_once_and_can_be_mapped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As behind NAT. The node itself answers; it is known by a name of its own network."""
    with RedisCluster(1, config={"cluster-announce-ip": "node-1.invalid"}) as cluster:
        port = cluster.primaries[0].port
        options = {"prefix": "{p}", "url": cluster.url, "retry_ms": DAY_MS}
        mapping = f"to which `addressMap` maps node-1.invalid:{port}"
        for mapped, named in (
            ({}, f"node-1.invalid:{port}"),
            ({"node-1.invalid": "far.invalid"}, f"far.invalid:{port}, {mapping}"),
            ({"node-1.invalid:1": "127.0.0.1", "NODE-1.invalid": "far.invalid:5"}, f"far.invalid:5, {mapping}"),
        ):
            why = f"was announced at {cluster.url}, .* host is unknown here"
            with pytest.raises(ConnectionLost, match=f"expected a server at {re.escape(named)}.* {why}"):
                BullQueue("q", **options, address_map=mapped)
        with pytest.raises(ConnectionLost, match=r"127.0.0.1:1, to which .* got none: .* map it with the option"):
            BullQueue("q", **options | {"retry_ms": 0}, address_map="node-1.invalid=127.0.0.1:1")
        mapped = {f"node-1.invalid:{port}": "127.0.0.1", "node-1.invalid": "far.invalid"}
        with BullQueue("q", **options, address_map=mapped) as queue:
            assert queue.add({}) == "1"
        monkeypatch.setenv("SPARK_BULL_ADDRESS_MAP", "node-1.invalid=127.0.0.1")
        read = parse_options({"url": cluster.url, "retryMs": "0"}, ReadOptions)
        assert main(["--url", cluster.url, "--prefix", "{p}", "counts", "q"]) == 0
        monkeypatch.delenv("SPARK_BULL_ADDRESS_MAP")
        # An executor does not have the variable.
        assert Connection(pickle.loads(pickle.dumps(read)).redis).call("EXISTS", "{p}:q:wait") == 1
        cluster.primaries[0].kill()
        with pytest.raises(RedisUnavailable, match="got none: "):
            Connection(read.redis).call("EXISTS", "{p}:q:wait")


def test_each_node_leads_to_all_queues(cluster: RedisCluster, queues: list[BullQueue], prefix: str) -> None:
    assert len({cluster.home(f"{prefix}:{name}:").port for name in NAMES}) == 3, "expected queues on each node"
    for queue in queues:
        assert queue.add({"n": 1}) == "1"
    for server in cluster.primaries:
        assert find_queues(connection(server.url), prefix) == NAMES
        assert find_queues(connection(server.url), prefix, "{q[12]}") == ["{q1}", "{q2}"]
        assert find_queues(connection(server.url).having(scan_keys=False), prefix) == NAMES
        for name in NAMES:
            assert BullQueue(name, url=server.url, prefix=prefix).counts()["wait"] == 1
    commands = [("GET", queue.handle.keys["id"]) for queue in queues]
    for raw in (True, False):
        assert connection(cluster.url).pipeline(commands, raw=raw) == [b"1"] * 6


def test_what_has_no_key_is_asked_of_all_nodes(
    cluster: RedisCluster, queues: list[BullQueue], prefix: str, run: Run
) -> None:
    for queue in queues:
        queue.add({})
    one = connection(cluster.url)
    found = [queue for part in scan_keys(one, prefix, {name.encode() for name in NAMES}) for queue in part]
    assert sorted(set(found)) == [name.encode() for name in NAMES]
    with OurWorker([queue.handle for queue in queues], chunk_size=1) as worker:
        wait_until(lambda: all(worker.loop.clients), "the slot to wait for all queues")
        for queue in queues:
            wait_until(lambda queue=queue: workers(one, queue.handle.keys), "the worker of the queue to be listed")
    options = parse_options({"url": cluster.url, "prefix": prefix}, QueueOptions)
    samples = collect(Export(options, ("*",), sample=0, window_ms=60_000, names=0))
    assert {dict(sample.labels).get("queue") for sample in samples} >= set(NAMES)
    assert [row["queue"] for row in run.data("counts", "*")] == NAMES


def test_the_doctor_examines_each_node(cluster: RedisCluster, queues: list[BullQueue], run: Run) -> None:
    for queue in queues:
        queue.add({})
        queue.add({}, delay=DAY_MS)
    shown = run("doctor", code=PROBLEMS)
    for server in cluster.primaries:
        node = rf"redis://127\.0\.0\.1:{server.port}(/0)?"
        assert re.search(rf"version: {node}: (Redis|Valkey) [\d.]+ at {node}", shown)
        assert re.search(rf"persistence: {node}: neither AOF nor RDB snapshots: all jobs are lost", shown)
    for name in NAMES:
        assert f"{name} orphans: no orphaned jobs" in shown
        assert f"{name} payloads: 2 of 2 sampled jobs have no field over 1,024 bytes" in shown


def test_a_worker_and_a_promoter_serve_queues_on_all_nodes(
    cluster: RedisCluster, queues: list[BullQueue], prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a signal from its node, the promoter checks for due jobs only after hours."""
    monkeypatch.setattr("spark_bull.run.services.promoter.MAX_PAUSE_S", 10_000.0)
    for queue in queues:
        queue.add({"n": 0}, delay=DAY_MS)
    with (
        Promoter(cluster.url, NAMES, prefix=prefix, protocol="bullmq", rescue=False),
        OurWorker([queue.handle for queue in queues], lambda job: job.data["n"], chunk_size=5) as worker,
    ):
        for number in range(3):
            for queue in queues:
                queue.add_many(NewJob({"n": n}, delay=50) for n in range(4))
            for queue in queues:
                wait_until(lambda queue=queue, n=number: queue.counts()["completed"] == 4 * (n + 1), "the jobs")
        wait_until(lambda: all(worker.loop.clients), "the slot to wait for all queues")
        # A stop ends the waits by CLIENT UNBLOCK on each node: without it, the test takes as long as they do.
        worker.control.request("stop")
        worker.control.unblock()


def test_a_move_to_another_slot_and_a_queue_without_a_hash_tag_are_refused(queues: list[BullQueue]) -> None:
    first, *others = queues
    other = next(one for one in others if key_slot(one.name.encode()) != key_slot(first.name.encode()))
    first.add({}, job_id="a")
    with pytest.raises(OptionError, match=r"to have the hash tag {q0} of queue {q0}, as one script writes to both"):
        first.move("a", other.name)
    assert (first.counts()["wait"], other.counts()["wait"]) == (1, 0)
    with pytest.raises(OptionError, match=r"must share a hash tag: expected one in `prefix` or `queue`"):
        first.handle.connection.check("bull", ["mail"], write=True)


def test_a_slot_that_is_migrated_is_waited_for_and_then_followed(
    cluster: RedisCluster, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    queue = BullQueue("{moved}", url=cluster.url, prefix=prefix, protocol="bullmq")
    queue.add_many(NewJob({"n": n}) for n in range(20))
    old = cluster.home(f"{prefix}:{{moved}}:")
    new = next(server for server in cluster.primaries if server is not old)
    slot = key_slot(b"{moved}")
    with Redis.from_url(old.url) as source, Redis.from_url(new.url) as target:

        def migrate(*keys: bytes) -> None:
            source.execute_command("MIGRATE", "127.0.0.1", new.port, "", 0, 60_000, "KEYS", *keys)

        ids = [client.execute_command("CLUSTER", "MYID").decode() for client in (source, target)]
        target.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
        source.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1])
        keys = source.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 10_000)
        job = next(key for key in keys if key.endswith(b":7"))
        migrate(job)
        # Some keys of the queue are on either node: no script may run on one of them.
        impatient = replace(queue.handle, connection=queue.handle.connection.having(retry_ms=100))
        # Redis 6.2 and later versions say something else of it.
        why = rf"\((slot {slot} to 127\.0\.0\.1:{new.port}|Multiple keys)"
        with pytest.raises(RedisUnavailable, match=f"is migrating the slot of the queue {why}"):
            remove(impatient, "7")
        assert target.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 10) == [job]
        done: list[int] = []
        with OurWorker(queue.handle, lambda one: done.append(one.data["n"]), chunk_size=4):
            migrate(*(key for key in keys if key != job))
            for left in source.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 10_000):
                migrate(left)
            for client in (target, source):
                client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[1])
            wait_until(lambda: queue.counts()["completed"] == 20, "the jobs to be processed on the new node")
        assert sorted(done) == [*range(20)]
    assert cluster.home(f"{prefix}:{{moved}}:") is new


def test_slots_without_a_node_are_named_and_a_socket_of_a_node_is_refused(
    own_redis: Callable[..., EmbeddedRedis], tmp_path: Path
) -> None:
    own = {"cluster-require-full-coverage": "no", "unixsocket": f"{tmp_path}/redis.sock"}
    server = own_redis({"cluster-enabled": "yes", **own})
    with Redis.from_url(server.url) as client:
        client.execute_command("CLUSTER", "ADDSLOTS", *(slot for slot in range(16384) if not 100 <= slot < 16000))
        wait_until(lambda: is_cluster_ready(client), "the cluster to be ready")
    queue = next(f"{{{n}}}" for n in range(1_000) if 100 <= key_slot(f"{{{n}}}".encode()) < 16000)
    with pytest.raises(RedisUnavailable, match=r"does not serve the slot of the queue.*not served are 100-15999"):
        BullQueue(queue, url=server.url, retry_ms=0).add({})
    with pytest.raises(ConnectionLost, match=r"is a node of a Redis Cluster, .*: give the host and port of a node"):
        BullQueue("{mail}", url=f"unix://{tmp_path}/redis.sock")


def test_a_node_that_hangs_or_is_away_is_named_and_hides_no_queue_of_the_others() -> None:
    with RedisCluster(3, config={"cluster-require-full-coverage": "no"}) as cluster:
        away = cluster.primaries[1]
        named = rf"127\.0\.0\.1:{away.port}\b"
        lost = [name for name in NAMES if cluster.home(f"bull:{name}:") is away]
        patient, hasty = {"url": cluster.url, "protocol": "bullmq"}, {"call_timeout_ms": 2_000, "retry_ms": 0}
        queues = {name: BullQueue(name, **patient, **(hasty if name in lost else {})) for name in NAMES}
        for queue in queues.values():
            queue.add({})
        os.kill(away.pid, signal.SIGSTOP)
        try:
            for name, queue in queues.items():
                if name in lost:
                    with pytest.raises(RedisUnavailable, match=named):
                        queue.counts()
                else:
                    assert queue.counts()["wait"] == 1
            with pytest.raises(RedisUnavailable, match=named):
                find_queues(Connection(RedisSettings(cluster.url, timeout_ms=2_000, retry_ms=0)), "bull")
        finally:
            os.kill(away.pid, signal.SIGCONT)
        assert find_queues(connection(cluster.url), "bull") == NAMES

        away.kill()
        options = parse_options({"url": cluster.url, "protocol": "bullmq", "retry_ms": "0"}, QueueOptions)
        results = run_together(connection(cluster.url, retry_ms=0), [_opened(options, name) for name in NAMES])
        by_name = zip(NAMES, results, strict=True)
        assert {name for name, found in by_name if isinstance(found, ConnectionLost)} == set(lost)
        # Its map is read from a node that answers, although the address names the lost one.
        found = BullQueue(next(name for name in NAMES if name not in lost), url=f"{away.url[:-2]},{cluster.url[8:]}")
        assert found.counts()["wait"] == 1
        with pytest.raises(RedisUnavailable, match=f"connecting to {named}"):
            find_queues(connection(cluster.url, retry_ms=0), "bull")


def _opened(options: Options, name: str) -> RoundTrips[str]:
    handle = yield from opening(options, name)
    yield [("GET", handle.keys["id"])]
    return handle.keys.queue


def test_the_doctor_names_the_node_on_which_a_right_is_missing(
    cluster: RedisCluster, queues: list[BullQueue], capsys: pytest.CaptureFixture[str]
) -> None:
    queues[0].add({})
    lacking = cluster.primaries[2]
    for server in cluster.primaries:
        with Redis.from_url(server.url) as client:
            allowed = [*rules("all", "dispatch", "doctor", prefix="{bull*", place="cluster").split(), "+info"]
            client.execute_command("ACL", "SETUSER", "few", "reset", "on", ">x", *allowed)
    with Redis.from_url(lacking.url) as client:
        client.execute_command("ACL", "SETUSER", "few", "-lpush", "-zadd")
    run = Run(capsys, cluster.url.replace("redis://", "redis://few:x@"), "{bull}")
    shown = run("doctor", "--rights", "dispatch", code=PROBLEMS)
    where = "redis://127.0.0.1:{}/0"
    assert f"rights: {where.format(lacking.port)}: the user lacks 2 commands for dispatch: +lpush, +zadd" in shown
    for server in cluster.primaries[:2]:
        assert f"rights: {where.format(server.port)}: the user has the rights for dispatch" in shown
    with Redis.from_url(cluster.url) as client:
        client.execute_command("ACL", "SETUSER", "few", "-cluster")
    assert "ACL SETUSER few '+cluster|slots'" in str(run.data("doctor", "--rights", "dispatch", code=PROBLEMS))
