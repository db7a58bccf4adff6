"""Writes with `replicas`: a primary and a replica of it are real servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructType
from redis import Redis

from spark_bull import BullQueue, EmbeddedRedis, FlowJob, NewJob, NotReplicated, OptionError
from spark_bull.core.queue import adding
from spark_bull.core.queue.dispatch.write_records import Identity
from spark_bull.core.queue.handle.admission import ReplicaTerms, check_replicas, wait_for_replicas
from tests.support.wait import wait_until
from tests.support.without_spark import ManageSink, ScheduleSink, Sink

ROWS = StructType().add("n", IntegerType())
SCHEDULES = StructType().add("id", StringType()).add("every", LongType())
CHANGES = StructType().add("id", StringType())
SOON_MS = 50


@dataclass
class Servers:
    """A primary and its replica, and their clients."""

    primary: EmbeddedRedis
    client: Redis
    copy: Redis

    def follow(self) -> None:
        """Makes the replica one again."""
        self.copy.replicaof("127.0.0.1", str(self.primary.port))
        wait_until(self.is_connected, "the replica to be connected")

    def is_connected(self) -> bool:
        slave = self.client.info("replication").get("slave0")
        return isinstance(slave, dict) and slave["state"] == "online"

    def queue(self, prefix: str, **options: Any) -> BullQueue:
        """The queue `q` on the primary."""
        return BullQueue("q", url=self.primary.url, prefix=prefix, protocol="bullmq", **options)

    def options(self, prefix: str, **options: str) -> dict[str, str]:
        """The options of a write to it that waits for the replica."""
        place = {"url": self.primary.url, "prefix": prefix, "queue": "q", "protocol": "bullmq"}
        return {**place, "replicas": "1", **options}


@pytest.fixture(scope="module")
def started() -> Iterator[Servers]:
    quick = {"repl-diskless-sync": "yes", "repl-diskless-sync-delay": "0", "save": '""'}
    with (
        EmbeddedRedis(quick) as primary,
        EmbeddedRedis(quick) as replica,
        Redis.from_url(primary.url) as client,
        Redis.from_url(replica.url) as copy,
    ):
        yield Servers(primary, client, copy)


@pytest.fixture
def servers(started: Servers) -> Servers:
    started.follow()
    return started


def test_a_call_returns_when_a_replica_has_the_jobs(servers: Servers, prefix: str) -> None:
    with servers.queue(prefix, replicas=1) as queue:
        added = queue.add_many(NewJob({"n": n}) for n in range(1_200))
        assert (added.added, added.replicas) == (1_200, 1)
        assert servers.copy.llen(f"{prefix}:q:wait") == 1_200
        flow = queue.add_flow(FlowJob({}, children=[FlowJob({})]))
        assert servers.copy.exists(f"{prefix}:q:{queue.add({})}", f"{prefix}:q:{flow.id}") == 2


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_write_of_spark_ends_when_a_replica_has_it(servers: Servers, prefix: str, delivery: str) -> None:
    sink = Sink(servers.options(prefix, delivery=delivery), ROWS)
    for first in (0, 700):
        sink.task([{"n": n} for n in range(first, first + 700)])
    sink.commit()
    assert servers.copy.llen(f"{prefix}:q:wait") == 1_400
    with servers.queue(prefix) as queue:
        (record,) = queue.writes()
        assert (record.added, record.replicas) == (1_400, 1)


def test_schedules_and_changes_are_replicated(servers: Servers, prefix: str) -> None:
    schedules = ScheduleSink(servers.options(prefix, mode="schedule"), SCHEDULES)
    schedules.task([{"id": "hourly", "every": 3_600_000}])
    schedules.commit()
    assert servers.copy.zscore(f"{prefix}:q:repeat", "hourly")
    with servers.queue(prefix) as queue:
        job_id = queue.add({}, delay=3_600_000)
        changes = ManageSink(servers.options(prefix, mode="manage", action="promote"), CHANGES)
        changes.task([{"id": job_id}])
        changes.commit()
        assert job_id.encode() in servers.copy.lrange(f"{prefix}:q:wait", 0, -1)
        assert [record.replicas for record in queue.writes()] == [1, 1]
    late = ManageSink(servers.options(prefix, mode="manage", action="remove", replicaTimeoutMs=f"{SOON_MS}"), CHANGES)
    late.task([{"id": job_id}])
    servers.copy.replicaof("NO", "ONE")
    with pytest.raises(NotReplicated, match=r"got 0. The jobs were changed: don't write again"):
        late.commit()
    with pytest.raises(NotReplicated, match="expected `replicas` to be at most 0"):
        ScheduleSink(servers.options(prefix, mode="schedule", retryMs="0"), SCHEDULES)


def test_a_write_that_too_few_replicas_have_says_so_and_is_not_repeated(servers: Servers, prefix: str) -> None:
    sink = Sink(servers.options(prefix, replicaTimeoutMs=f"{SOON_MS}"), ROWS, Identity("query", 1))
    sink.task([{"n": 1}])
    # A replica that has gone after the check.
    servers.copy.replicaof("NO", "ONE")
    with pytest.raises(NotReplicated, match=r"expected 1 replicas .*, got 0. The jobs were added"):
        sink.commit()
    servers.follow()
    again = Sink(servers.options(prefix), ROWS, Identity("query", 1))
    again.task([{"n": 1}])
    assert again.messages[0].parts == ()
    again.commit()
    assert servers.copy.lrange(f"{prefix}:q:wait", 0, -1) == [b"1"]


def test_a_job_that_too_few_replicas_have_is_added_with_an_error(
    servers: Servers, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replica goes after the check, and before the job is added."""
    add = adding.add_chunk

    def add_without_replica(*args: Any, **more: Any) -> Any:
        servers.copy.replicaof("NO", "ONE")
        return add(*args, **more)

    monkeypatch.setattr(adding, "add_chunk", add_without_replica)
    with servers.queue(prefix, replicas=1, replica_timeout_ms=SOON_MS) as queue:
        with pytest.raises(NotReplicated) as raised:
            queue.add({})
        assert (raised.value.queue, raised.value.replicas) == ("q", 0)
        assert queue.counts()["wait"] == 1


def test_too_few_replicas_are_an_error_before_anything_is_written(
    servers: Servers, client: Redis, open_queue: Callable[..., BullQueue], redis_url: str, prefix: str
) -> None:
    message = r"expected `replicas` to be at most 0, the number of replicas that are connected to Redis at .*, got: 1"
    with pytest.raises(NotReplicated, match=message) as raised:
        open_queue("q", replicas=1, retry_ms=0).add({})
    assert (raised.value.queue, raised.value.replicas, raised.value.was_written) == ("q", 0, False)
    with pytest.raises(NotReplicated, match=message):
        Sink(servers.options(prefix, url=redis_url, retryMs="0"), ROWS)
    assert list(client.scan_iter(f"{prefix}:*")) == []
    with pytest.raises(NotReplicated, match=r"to be at most 1, .* got: 2"):
        Sink(servers.options(prefix, replicas="2", retryMs="0"), ROWS)


def test_a_write_waits_for_a_replica_that_restarts(
    servers: Servers, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    servers.copy.replicaof("NO", "ONE")
    wait_until(lambda: servers.client.info("replication")["connected_slaves"] == 0, "the replica to be gone")
    with ThreadPoolExecutor(1) as pool, servers.queue(prefix, replicas=1, retry_ms=60_000) as queue:
        added = pool.submit(queue.add_many, [NewJob({})])
        wait_until(lambda: "too few replicas for a write" in caplog.text or added.done(), "the write to wait")
        servers.follow()
        assert added.result().replicas == 1


def test_a_primary_that_is_replaced_during_a_write_is_an_error(servers: Servers, prefix: str) -> None:
    with servers.queue(prefix) as queue:
        terms, primary = ReplicaTerms(1, 60_000), servers.client.info("replication")["master_replid"]
        assert check_replicas(queue.handle.connection, terms, "q") == {primary}
        with pytest.raises(NotReplicated, match="another server has become the primary"):
            wait_for_replicas(queue.handle.connection, queue.handle.keys, terms, {"another server"})


def test_wrong_terms_are_refused(redis_url: str) -> None:
    for arguments, message in [
        ({"replicas": 0}, "expected `replicas` to be a positive integer, got: '0'"),
        ({"replica_timeout_ms": 5}, "expected `replicas` with `replica_timeout_ms`, got none"),
    ]:
        with pytest.raises(OptionError, match=message):
            BullQueue("q", url=redis_url, **arguments)
