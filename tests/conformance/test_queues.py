"""Filters and the registry of queues: what is written or worked is found without a scan of keys."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from redis import Redis

from spark_bull import BullQueue, FlowJob, NewJob, Promoter
from spark_bull.core.clock import epoch_ms
from spark_bull.core.errors import OptionError
from spark_bull.core.keys import queue_registry
from spark_bull.core.queue.handle import handle as registry
from spark_bull.core.queue.handle.handle import FORGET_MS, deletion_args, forget_gone, noted_queues
from spark_bull.core.queue.monitor.activity import QueueFilter, selecting
from spark_bull.core.queue.monitor.find import find_queues, select_queues
from spark_bull.core.store.connection import Connection
from spark_bull.core.store.round_trips import run
from tests.support.jobs import HOUR
from tests.support.work_bench import DIALECTS, Filled, WorkBench, completed
from tests.support.writes import register_all

Open = Callable[..., BullQueue]


def fits(bench: WorkBench, **bounds: float) -> bool:
    return run(bench.handle.connection, selecting(bench.handle, QueueFilter(**bounds)))


def test_the_length_counts_jobs_that_are_not_active_and_have_not_ended(bench: WorkBench) -> None:
    bench.add(3)
    bench.add(2, delay=HOUR)
    claim = bench.claim(2)
    bench.claim(1)
    bench.work(completed(claim))
    assert bench.counts() == {"active": 1, "completed": 2, "delayed": 2}
    assert [fits(bench, min_length=n) for n in (2, 3)] == [True, False]
    assert [fits(bench, max_length=n) for n in (1, 2)] == [False, True]
    assert fits(bench)


def test_rates_and_idleness_are_those_of_the_last_minute(bench: WorkBench) -> None:
    bench.add(6)
    bench.work(completed(bench.claim(6)))
    known = bench.queue.protocol != "bull-1"
    assert fits(bench, min_finished_per_s=0.05) == known
    assert fits(bench, min_added_per_s=0.05) == bench.bullmq
    assert fits(bench, min_idle_ms=0) == known
    assert not fits(bench, min_idle_ms=HOUR)
    assert not fits(bench, min_finished_per_s=1_000)


def test_a_queue_that_is_too_short_is_not_read_further(bench: WorkBench) -> None:
    bench.add(1)
    steps = selecting(bench.handle, QueueFilter(min_length=2, min_idle_ms=0))
    commands = next(steps)
    with pytest.raises(StopIteration) as end:
        steps.send(bench.handle.connection.pipeline(commands))
    assert end.value.value is False


def test_a_queue_whose_first_write_is_unfinished_is_found_and_the_write_is_finished(bench: WorkBench) -> None:
    """Its driver has died before the first job was added."""
    keys, connection = bench.handle.keys, bench.handle.connection
    register_all(bench.handle, "w", [[NewJob({"n": 1})]])
    assert find_queues(connection, keys.prefix) == [keys.queue]
    promoter = Promoter(connection.settings.url, prefix=keys.prefix)
    assert promoter.once().recovered == 1
    assert bench.counts() == {"wait": 1}


def test_bounds_that_exclude_each_other_are_an_error() -> None:
    with pytest.raises(OptionError, match="expected `minLength` to be at most `maxLength`, got: 3 and 2"):
        QueueFilter(min_length=3, max_length=2)


#: Scripts that look at all keys, or commands that do so.
SCANS = ("cmdstat_scan", "cmdstat_keys")


@pytest.fixture(autouse=True)
def _new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process has noted no queue yet."""
    monkeypatch.setattr(registry, "_next_at", {})


@pytest.fixture
def unscanned(open_queue: Open) -> Connection:
    """A connection that finds queues without a scan."""
    return open_queue("any", "bull", scan_keys=False).handle.connection


def scans_of(client: Redis) -> int:
    stats = client.info("commandstats")
    return sum(stats[name]["calls"] for name in SCANS if name in stats)


@pytest.mark.parametrize("protocol", DIALECTS)
def test_a_queue_that_was_written_is_found_without_a_scan(
    client: Redis, open_queue: Open, unscanned: Connection, prefix: str, protocol: str
) -> None:
    for name in ("mail", "sms"):
        queue = open_queue(name, protocol)
        queue.add({})
    assert find_queues(queue.handle.connection, prefix) == ["mail", "sms"], "the registry is no queue"
    before = scans_of(client)
    assert find_queues(unscanned, prefix) == ["mail", "sms"]
    assert select_queues(unscanned, prefix, ["s*", "absent"]) == ["sms", "absent"]
    assert scans_of(client) == before


def test_a_write_pays_one_command_for_it(client: Redis, open_queue: Open, prefix: str) -> None:
    queue = open_queue(protocol="bullmq", chunk_size=10)
    queue.add_many(NewJob({}) for _ in range(100))
    noted = client.zscore(queue_registry(prefix), "q")
    client.zadd(queue_registry(prefix), {"q": 1})
    queue.add_many(NewJob({}) for _ in range(100))
    assert noted > 1
    assert client.zscore(queue_registry(prefix), "q") == 1


def test_a_queue_of_node_is_found_by_its_keys_and_registered_when_it_is_worked(
    client: Redis, bench: WorkBench, unscanned: Connection, prefix: str
) -> None:
    bench.add(1)
    client.delete(queue_registry(prefix))
    registry._next_at.clear()
    assert (find_queues(unscanned, prefix), find_queues(bench.handle.connection, prefix)) == ([], ["q"])
    bench.work(completed(bench.claim()))
    assert find_queues(unscanned, prefix) == ["q"]


@pytest.mark.parametrize("filled", ["bull"], indirect=True)
def test_a_promoter_registers_the_queues_that_it_finds(
    filled: Filled, unscanned: Connection, redis_url: str, prefix: str
) -> None:
    filled.put("delayed", ["1"], delay=1)
    Promoter(redis_url, prefix=prefix, rescue=False).once()
    assert find_queues(unscanned, prefix) == ["q"]


def test_the_queues_of_a_flow_are_registered(open_queue: Open, unscanned: Connection, prefix: str) -> None:
    open_queue("a", "bullmq").add_flow(FlowJob({}, children=[FlowJob({}, queue="b"), FlowJob({}, queue="c")]))
    assert find_queues(unscanned, prefix) == ["a", "b", "c"]


def test_an_obliterated_queue_leaves_the_registry(
    client: Redis, open_queue: Open, unscanned: Connection, prefix: str
) -> None:
    """Its name stays for a while, as a process that has noted it may write to it; so does a new one."""
    for name in ("gone", "there", "new"):
        queue = open_queue(name, "bullmq")
        queue.add({})
        if name != "there":
            queue.obliterate()
    client.zadd(queue_registry(prefix), dict.fromkeys(("gone", "there"), epoch_ms() - FORGET_MS - 1))
    assert find_queues(unscanned, prefix) == ["there"]
    assert {one.queue for one in noted_queues(unscanned, prefix) if not one.exists} == {"gone", "new"}
    assert forget_gone(unscanned, prefix) == 1
    assert client.zrange(queue_registry(prefix), 0, -1) == [b"there", b"new"]


def test_the_first_call_that_obliterates_leaves_no_job_to_workers_beside_many_records_of_writes(
    bench: WorkBench, client: Redis
) -> None:
    bench.add(3)
    keys = bench.handle.keys
    client.zadd(keys["finished_writes"], {f"w{n}": n for n in range(1_500)})
    args = deletion_args(bench.handle) | {"position": 0, "force": 0}
    assert bench.handle.run_once("obliterate", args) == [b"open"]
    assert bench.queue.is_paused() or bench.counts() == {}
