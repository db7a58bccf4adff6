"""The primary of Redis dies while a writer waits for its replicas: the jobs were added, and the error says so."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, StructType
from redis import Redis

from spark_bull import BullQueue, EmbeddedRedis, NewJob, NotReplicated
from spark_bull.core.queue.dispatch.write_records import Identity
from spark_bull.spark.staging import commit
from tests.support.wait import wait_until
from tests.support.without_spark import Sink

ROWS = StructType().add("n", IntegerType())
RETRY_MS = 100
LONG_MS = 600_000


@dataclass
class Servers:
    """A primary that persists every change, and its replica."""

    primary: EmbeddedRedis
    replica: EmbeddedRedis
    client: Redis

    @contextmanager
    def replica_without_answer(self) -> Iterator[None]:
        """The replica stays connected, and confirms nothing: WAIT does not end."""
        os.kill(self.replica.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.replica.pid, signal.SIGCONT)

    def kill_primary_during(self, write: Callable[[], object]) -> None:
        """Kills the primary once the writer waits for the replica; the writer's error is raised."""
        with self.replica_without_answer(), ThreadPoolExecutor(1) as pool:
            writer = pool.submit(write)
            wait_until(lambda: writer.done() or self.client.info("clients")["blocked_clients"], "the writer to wait")
            self.primary.kill()
            writer.result()


@pytest.fixture
def servers(own_redis: Callable[..., EmbeddedRedis]) -> Iterator[Servers]:
    quick = {"repl-diskless-sync": "yes", "repl-diskless-sync-delay": "0"}
    primary, replica = own_redis(quick | {"appendonly": "yes", "appendfsync": "always"}), own_redis(quick)
    with Redis.from_url(primary.url) as client, Redis.from_url(replica.url) as copy:
        copy.replicaof("127.0.0.1", str(primary.port))
        wait_until(
            lambda: client.info("replication").get("slave0", {}).get("state") == "online", "the replica to follow"
        )
        yield Servers(primary, replica, client)


def test_a_call_whose_primary_dies_says_that_its_jobs_were_added(servers: Servers) -> None:
    jobs = 300
    options: dict[str, Any] = {"url": servers.primary.url, "replicas": 1, "replica_timeout_ms": LONG_MS}
    with BullQueue("q", **options, retry_ms=RETRY_MS) as queue:
        with pytest.raises(NotReplicated, match=r"jobs were added, but .* queue q. Check what exists") as raised:
            servers.kill_primary_during(lambda: queue.add_many(NewJob({"n": n}) for n in range(jobs)))
        assert (raised.value.queue, raised.value.replicas) == ("q", 0)
        servers.primary.start()
        assert queue.counts()["wait"] == jobs


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_write_whose_primary_dies_says_that_its_jobs_were_added(servers: Servers, delivery: str) -> None:
    options = {"url": servers.primary.url, "queue": "q", "delivery": delivery, "replicas": "1"}
    options |= {"replicaTimeoutMs": str(LONG_MS), "retryMs": str(RETRY_MS)}
    sink = Sink(options, ROWS, Identity("query", 1))
    sink.task([{"n": n} for n in range(300)])
    with pytest.raises(NotReplicated, match=r"jobs were added, but .* queue q. Check what exists"):
        servers.kill_primary_during(sink.commit)
    servers.primary.start()
    with BullQueue("q", url=servers.primary.url) as queue:
        (record,) = queue.writes()
        assert (record.added, record.replicas, queue.counts()["wait"]) == (300, None, 300)


def test_a_write_whose_primary_dies_after_the_replica_has_it_succeeds(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Only its record lacks the number of replicas."""
    wait = commit.wait_for_replicas

    def wait_and_kill(*args: Any) -> int:
        replicas = wait(*args)
        servers.primary.kill()
        return replicas

    monkeypatch.setattr(commit, "wait_for_replicas", wait_and_kill)
    options = {"url": servers.primary.url, "queue": "q", "replicas": "1", "replicaTimeoutMs": str(LONG_MS)}
    sink = Sink(options | {"retryMs": str(RETRY_MS)}, ROWS)
    sink.task([{"n": 1}])
    sink.commit()
    assert "its record lacks the number of replicas" in caplog.text
