"""The registry of queues: what is written or worked is found without a scan of keys."""

from __future__ import annotations

import pytest
from redis import Redis

from spark_bull import BullQueue, FlowJob, NewJob, Promoter
from spark_bull.core.clock import epoch_ms
from spark_bull.core.keys import queue_registry
from spark_bull.core.queue.handle import queue_registry as registry
from spark_bull.core.queue.handle.queue_registry import FORGET_MS, forget_gone, noted_queues
from spark_bull.core.queue.monitor.find import find_queues, select_queues
from spark_bull.core.store.connection import Connection
from tests.support.work_bench import DIALECTS, Filled, WorkBench, completed, not_bull_1

#: Scripts that look at all keys, or commands that do so.
SCANS = ("cmdstat_scan", "cmdstat_keys")


@pytest.fixture(autouse=True)
def _new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process has noted no queue yet."""
    monkeypatch.setattr(registry, "_next_at", {})


def unscanned(redis_url: str, prefix: str) -> Connection:
    with BullQueue("any", url=redis_url, prefix=prefix, protocol="bull", scan_keys=False) as queue:
        return queue.handle.connection


def scans_of(client: Redis) -> int:
    stats = client.info("commandstats")
    return sum(stats[name]["calls"] for name in SCANS if name in stats)


@pytest.mark.parametrize("protocol", DIALECTS)
def test_a_queue_that_was_written_is_found_without_a_scan(
    client: Redis, redis_url: str, prefix: str, protocol: str
) -> None:
    for name in ("mail", "sms"):
        with BullQueue(name, url=redis_url, prefix=prefix, protocol=protocol) as queue:
            queue.add({})
    connection, before = unscanned(redis_url, prefix), scans_of(client)
    assert find_queues(connection, prefix) == ["mail", "sms"]
    assert select_queues(connection, prefix, ["s*", "absent"]) == ["sms", "absent"]
    assert scans_of(client) == before


def test_a_write_pays_one_command_for_it(client: Redis, redis_url: str, prefix: str) -> None:
    with BullQueue("q", url=redis_url, prefix=prefix, protocol="bullmq", chunk_size=10) as queue:
        queue.add_many(NewJob({}) for _ in range(100))
        noted = client.zscore(queue_registry(prefix), "q")
        client.zadd(queue_registry(prefix), {"q": 1})
        queue.add_many(NewJob({}) for _ in range(100))
    assert noted > 1
    assert client.zscore(queue_registry(prefix), "q") == 1


def test_a_queue_of_node_is_found_by_its_keys_and_registered_when_it_is_worked(
    client: Redis, bench: WorkBench, redis_url: str, prefix: str
) -> None:
    bench.add(1)
    client.delete(queue_registry(prefix))
    registry._next_at.clear()
    without = unscanned(redis_url, prefix)
    assert (find_queues(without, prefix), find_queues(bench.handle.connection, prefix)) == ([], ["q"])
    bench.work(completed(bench.claim()))
    assert find_queues(without, prefix) == ["q"]


@pytest.mark.parametrize("filled", ["bull"], indirect=True)
def test_a_promoter_registers_the_queues_that_it_finds(filled: Filled, redis_url: str, prefix: str) -> None:
    filled.put("delayed", ["1"], delay=1)
    Promoter(redis_url, prefix=prefix, rescue=False).once()
    assert find_queues(unscanned(redis_url, prefix), prefix) == ["q"]


def test_the_queues_of_a_flow_and_of_follow_ups_are_registered(redis_url: str, prefix: str) -> None:
    with BullQueue("a", url=redis_url, prefix=prefix, protocol="bullmq") as queue:
        queue.add_flow(FlowJob({}, children=[FlowJob({}, queue="b"), FlowJob({}, queue="c")]))
    assert find_queues(unscanned(redis_url, prefix), prefix) == ["a", "b", "c"]


def test_an_obliterated_queue_leaves_the_registry(client: Redis, redis_url: str, prefix: str) -> None:
    """Its name stays for a while, as a process that has noted it may write to it; so does a new one."""
    for name in ("gone", "there", "new"):
        with BullQueue(name, url=redis_url, prefix=prefix, protocol="bullmq") as queue:
            queue.add({})
            if name != "there":
                queue.obliterate()
    connection, old = unscanned(redis_url, prefix), epoch_ms() - FORGET_MS - 1
    client.zadd(queue_registry(prefix), {"gone": old, "there": old})
    assert find_queues(connection, prefix) == ["there"]
    assert {one.queue for one in noted_queues(connection, prefix) if not one.exists} == {"gone", "new"}
    assert forget_gone(connection, prefix) == 1
    assert client.zrange(queue_registry(prefix), 0, -1) == [b"there", b"new"]


@not_bull_1
def test_the_registry_is_no_queue_and_no_key_of_one(bench: WorkBench, prefix: str) -> None:
    bench.add(1)
    assert find_queues(bench.handle.connection, prefix) == ["q"]
    assert not queue_registry(prefix).startswith(bench.handle.keys.base)
