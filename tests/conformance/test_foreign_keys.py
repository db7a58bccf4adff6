"""Queues of older libraries, and keys that are not ours: no job is lost, and other queues are not disturbed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from redis import Redis

from spark_bull import BullQueue, DialectError, LocalWorker, OptionError
from spark_bull.core.options.parse import parse_arguments, parse_options
from spark_bull.core.options.table import COLLECT, SERVICE
from spark_bull.core.queue.monitor.find import describe, find_queues
from spark_bull.ops.cli.doctor import queues as doctor
from spark_bull.run.services.collector import Collector
from spark_bull.run.services.queue_set import QueueSet
from tests.support.dump import dump
from tests.support.node import NodePeer

StartNode = Callable[..., NodePeer]
BULLMQ_5 = "bullmq-5.81.5"


def test_resume_of_a_bullmq_that_writes_no_version_loses_no_job(
    node: StartNode, client: Redis, redis_url: str, prefix: str
) -> None:
    """BullMQ up to 5.19, and its Python package 2, resume as BullMQ 5: they rename `paused` over `wait`."""
    peer = node(BULLMQ_5, prefix=prefix)
    peer.call("add", queue="q", jobs=[{"name": "first", "data": {}}])
    client.hdel(f"{prefix}:q:meta", "version")
    with BullQueue("q", url=redis_url, prefix=prefix) as queue:
        peer.call("pause", queue="q")
        ids = [queue.add({"n": number}) for number in range(10)]
        peer.call("resume", queue="q")
        assert sorted(job.id for job in queue.page("wait")) == sorted(["1", *ids])


OLD = {
    "meta": lambda client, base: client.hset(base + "meta", "version", "bullmq:4.18.2"),
    "priority": lambda client, base: client.zadd(base + "priority", {"1": 3}),
    "marker": lambda client, base: client.lpush(base + "wait", "0:1795873189148"),
    "attempts": lambda client, base: client.hset(base + "1", "attemptsMade", 1),
}


@pytest.mark.parametrize("sign", OLD)
def test_a_queue_of_bullmq_3_or_4_gets_no_jobs_of_ours(
    client: Redis, redis_url: str, prefix: str, sign: str, caplog: pytest.LogCaptureFixture
) -> None:
    """They never look at prioritized jobs as BullMQ 5 stores them (3), and count attempts in another field."""
    base = f"{prefix}:q:"
    fill(client, base)
    OLD[sign](client, base)
    with BullQueue("q", url=redis_url, prefix=prefix) as queue:
        before = dump(client, prefix, "q")
        for refused in (
            lambda: queue.add({}),
            lambda: queue.upsert_scheduler("s", every=60_000),
            lambda: queue.change_priority("1", 2),
            lambda: queue.promote("2"),
            lambda: LocalWorker("q", print, url=redis_url, prefix=prefix),
        ):
            with pytest.raises(DialectError, match="open the queue with BullMQ 5 or 6"):
                refused()
        assert dump(client, prefix, "q") == before
        assert describe(queue.handle).version == ("bullmq:4.18.2" if sign == "meta" else "bullmq:3 or 4")
        assert QueueSet(parse_arguments({"url": redis_url, "prefix": prefix}, SERVICE), "*", works=True).handles() == []
        assert [finding.level for finding in doctor.dialect(queue.handle)] == ["warning"]
        queue.remove("2")
        assert queue.job("1") is not None
    assert len([record for record in caplog.records if "one of BullMQ 3 or 4" in record.message]) == 1
    with BullQueue("q", url=redis_url, prefix=prefix, bullmq_version="5") as queue:
        assert queue.add({})


def test_a_job_that_bullmq_5_has_run_shows_that_the_queue_is_its_own(
    client: Redis, redis_url: str, prefix: str
) -> None:
    base = f"{prefix}:q:"
    fill(client, base)
    for sign in ("priority", "attempts"):
        OLD[sign](client, base)
    client.hset(base + "3", mapping={"timestamp": 1, "ats": 1, "atm": 1})
    client.zadd(base + "completed", {"3": 5})
    with BullQueue("q", url=redis_url, prefix=prefix) as queue:
        assert queue.add({})


def test_a_queue_whose_name_bullmq_refuses_is_skipped_by_globs_and_served_by_name(
    client: Redis, redis_url: str, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    fill(client, f"{prefix}:reports:daily:")
    client.zadd(f"{prefix}:reports:daily:completed", {"1": 5})
    client.lrem(f"{prefix}:reports:daily:wait", 1, "1")
    client.set(f"{prefix}:".encode() + b"\xff:id", 1)
    with BullQueue("mail", url=redis_url, prefix=prefix, protocol="bullmq") as queue:
        queue.add({})
        for _ in range(2):
            assert find_queues(queue.handle.connection, prefix) == ["mail"]
    assert len([record for record in caplog.records if "such as reports:daily" in record.message]) == 1
    for selection, found in (("*", ["mail"]), ("reports:daily", ["reports:daily"])):
        options = parse_options({"url": redis_url, "prefix": prefix, "queue": selection}, COLLECT)
        collector = Collector(options, "reader")
        try:
            ends = collector.advance({}, None)
            assert sorted(ends) == found
            assert sum(ends.values()) == (selection != "*")
        finally:
            collector.close()
    with BullQueue("reports:daily", url=redis_url, prefix=prefix) as queue:
        assert queue.counts()["completed"] == 1
        queue.retry("1", "completed")
        queue.promote("2")
        assert [job.id for job in queue.page("wait")] == ["1", "2"]
        with pytest.raises(OptionError, match="without ':'"):
            queue.add({})


def fill(client: Redis, base: str) -> None:
    """A job that waits and one that is delayed, as all versions of BullMQ store them."""
    for number in ("1", "2"):
        client.hset(
            base + number,
            mapping={"name": "a", "data": "{}", "opts": '{"attempts":3}', "timestamp": 1, "delay": 0, "priority": 0},
        )
    client.set(base + "id", 2)
    client.hset(base + "meta", "opts.maxLenEvents", 10_000)
    client.lpush(base + "wait", "1")
    client.zadd(base + "delayed", {"2": 2**52})
