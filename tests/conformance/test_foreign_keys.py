"""Queues of older libraries, counters that others have set, and keys that are not ours: no job is lost."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from redis import Redis

from spark_bull import BullQueue, DialectError, LocalWorker, OptionError
from spark_bull.core.errors import QueueDamaged
from spark_bull.core.model.jobs import NewJob
from spark_bull.core.options.parse import parse_arguments, parse_options
from spark_bull.core.options.table import CollectOptions, ServiceOptions
from spark_bull.core.queue.dispatch.registration import register
from spark_bull.core.queue.dispatch.roll_forward import roll_forward
from spark_bull.core.queue.dispatch.written import written_ids
from spark_bull.core.queue.monitor.find import describe, find_queues
from spark_bull.ops.cli.doctor import queues as doctor
from spark_bull.run.services.collector import Collector
from spark_bull.run.services.service import QueueSet
from tests.support.dump import dump
from tests.support.node import NodePeer
from tests.support.work_bench import WorkBench
from tests.support.writes import stage_all

#: The first number that Lua and Node can't tell from the next one.
LIMIT = 2**53
#: Jobs that have nothing but a payload are added in another way than those beside a job with more.
WAYS = pytest.mark.parametrize("others", [[], [{"lifo": True}]], ids=["plain jobs", "with another"])


def jobs(count: int, others: list[dict[str, Any]]) -> list[NewJob]:
    return [*(NewJob({"n": n}) for n in range(count)), *(NewJob({"n": count}, **other) for other in others)]


def waiting(bench: WorkBench) -> dict[str, Any]:
    """The payloads of the waiting jobs, by their ids."""
    return {job.id: job.data for job in bench.queue.page("wait")}


@WAYS
def test_a_counter_that_is_too_large_or_no_number_is_refused_before_anything_is_added(
    bench: WorkBench, others: list[dict[str, Any]]
) -> None:
    more = jobs(6 - len(others), others)
    for counter in (LIMIT - 6, LIMIT, 2**63 - 1, "abc", "1.5"):
        bench.client.set(bench.key("id"), counter)
        before = bench.public()
        found = re.escape(f"expected {bench.key('id')} to be a number below 2^53, found '{counter}'")
        with pytest.raises(QueueDamaged, match=found):
            bench.queue.add_many(more)
        assert bench.public() == before
    bench.client.set(bench.key("id"), LIMIT - 7)
    ids = bench.queue.add_many(more).ids
    assert ids == [str(LIMIT - 6 + n) for n in range(6)]
    assert waiting(bench) == {job_id: {"n": n} for n, job_id in enumerate(ids)}


@WAYS
def test_a_number_whose_key_somebody_has_is_passed_over(bench: WorkBench, others: list[dict[str, Any]]) -> None:
    taken = {"2": "string", "4": "list", "5": "hash"}
    bench.client.set(bench.handle.keys.job("2"), "x")
    bench.client.rpush(bench.handle.keys.job("4"), "x")
    bench.client.hset(bench.handle.keys.job("5"), "theme", "dark")
    for _ in range(2):
        ids = bench.queue.add_many(jobs(5, others)).ids
        assert not {*ids} & {*taken}
        found = waiting(bench)
        assert [found[job_id] for job_id in ids] == [{"n": n} for n in range(5 + len(others))]
    assert len(found) == 2 * len(ids)
    assert {job_id: bench.client.type(bench.handle.keys.job(job_id)).decode() for job_id in taken} == taken
    assert bench.client.hgetall(bench.handle.keys.job("5")) == {b"theme": b"dark"}
    assert bench.queue.remove_orphans() == 0
    last = int(bench.client.get(bench.key("id")) or 0)
    bench.client.set(bench.handle.keys.job(str(last + 2)), "x")
    register("w", [stage_all(bench.handle, "w", [jobs(3, others)], 10, keepsIds=1)], None)
    roll_forward(bench.handle, "w")
    kept = [bench.queue.job(job_id) for job_id in written_ids(bench.handle, "w")]
    assert [job and job.data for job in kept] == [{"n": n} for n in range(3 + len(others))]


Open = Callable[..., BullQueue]


def test_resume_of_a_bullmq_that_writes_no_version_loses_no_job(
    node: Callable[..., NodePeer], open_queue: Open, client: Redis, prefix: str
) -> None:
    """BullMQ up to 5.19, and its Python package 2, resume as BullMQ 5: they rename `paused` over `wait`."""
    peer = node("bullmq-5.81.5", prefix=prefix)
    peer.call("add", queue="q", jobs=[{"name": "first", "data": {}}])
    client.hdel(f"{prefix}:q:meta", "version")
    queue = open_queue()
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
    client: Redis, open_queue: Open, redis_url: str, prefix: str, sign: str, caplog: pytest.LogCaptureFixture
) -> None:
    """They never look at prioritized jobs as BullMQ 5 stores them (3), and count attempts in another field."""
    base, place = f"{prefix}:q:", {"url": redis_url, "prefix": prefix}
    fill(client, base)
    OLD[sign](client, base)
    queue = open_queue()
    before = dump(client, prefix, "q")
    for refused in (
        lambda: queue.add({}),
        lambda: queue.upsert_scheduler("s", every=60_000),
        lambda: queue.change_priority("1", 2),
        lambda: queue.promote("2"),
        lambda: LocalWorker("q", print, **place),
    ):
        with pytest.raises(DialectError, match="open the queue with BullMQ 5 or 6"):
            refused()
    assert dump(client, prefix, "q") == before
    assert describe(queue.handle).version == ("bullmq:4.18.2" if sign == "meta" else "bullmq:3 or 4")
    assert QueueSet(parse_arguments(place, ServiceOptions), "*", works=True).handles() == []
    assert [finding.level for finding in doctor.dialect(queue.handle)] == ["warning"]
    queue.remove("2")
    assert queue.job("1") is not None
    assert len([record for record in caplog.records if "one of BullMQ 3 or 4" in record.getMessage()]) == 1
    assert open_queue(bullmq_version="5").add({})


def test_a_job_that_bullmq_5_has_run_shows_that_the_queue_is_its_own(
    client: Redis, open_queue: Open, prefix: str
) -> None:
    base = f"{prefix}:q:"
    fill(client, base)
    for sign in ("priority", "attempts"):
        OLD[sign](client, base)
    client.hset(base + "3", mapping={"timestamp": 1, "ats": 1, "atm": 1})
    client.zadd(base + "completed", {"3": 5})
    assert open_queue().add({})


def test_a_queue_whose_name_bullmq_refuses_is_skipped_by_globs_and_served_by_name(
    client: Redis, open_queue: Open, redis_url: str, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    fill(client, f"{prefix}:reports:daily:")
    client.zadd(f"{prefix}:reports:daily:completed", {"1": 5})
    client.lrem(f"{prefix}:reports:daily:wait", 1, "1")
    client.set(f"{prefix}:".encode() + b"\xff:id", 1)
    mail = open_queue("mail", "bullmq")
    mail.add({})
    for _ in range(2):
        assert find_queues(mail.handle.connection, prefix) == ["mail"]
    assert len([record for record in caplog.records if "such as reports:daily" in record.getMessage()]) == 1
    for selection, found in (("*", ["mail"]), ("reports:daily", ["reports:daily"])):
        options = parse_options({"url": redis_url, "prefix": prefix, "queue": selection}, CollectOptions)
        with closing(Collector(options, "reader")) as collector:
            ends = collector.advance({}, None)
        assert sorted(ends) == found
        assert sum(ends.values()) == (selection != "*")
    queue = open_queue("reports:daily")
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
