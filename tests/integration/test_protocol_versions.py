"""Tests with both versions of the protocol between redis-py and Redis. Before redis-py 8, version 2 is the default."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis import Redis

from spark_bull import BullQueue, NewJob
from spark_bull.cli.doctor.queues import overdue
from spark_bull.cli.doctor.server import Server, eviction
from spark_bull.clock import DELAYED_SCALE
from spark_bull.queue.monitor.activity import activity
from spark_bull.queue.process.claim import limited_groups_ms

PAST_MS = 1_000

all_dialects = pytest.mark.parametrize("protocol", ["bullmq", "bull", "bull-1"])


@pytest.fixture(params=["2", "3"])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def queue(protocol: str, redis_url: str, prefix: str, version: str) -> Iterator[BullQueue]:
    with BullQueue("q", url=redis_url, prefix=prefix, protocol=protocol, redis={"protocol": version}) as queue:
        yield queue


@all_dialects
def test_overdue_jobs_are_found(queue: BullQueue, client: Redis) -> None:
    queue.add_many([NewJob({}, delay=60_000), NewJob({}, delay=70_000)])
    client.zadd(queue.handle.keys["delayed"], {"1": PAST_MS * DELAYED_SCALE})

    found = activity(queue.handle)

    assert (found.overdue, found.overdue_since) == (1, PAST_MS)
    (finding,) = overdue(queue.handle)
    assert "1 delayed job, the first late by" in finding.found


@pytest.mark.parametrize("protocol", ["bull"])
def test_the_end_of_the_last_job_is_found(queue: BullQueue, client: Redis) -> None:
    client.zadd(queue.handle.keys["completed"], {"1": 5_000, "2": 7_000})

    assert activity(queue.handle).last_active_on == 7_000


@pytest.mark.parametrize("protocol", ["bullmq", "bull"])
def test_jobs_are_counted_by_priority(queue: BullQueue) -> None:
    queue.add_many([NewJob({}, priority=2), NewJob({}, priority=2), NewJob({}, priority=9)])

    (counted,) = queue.counts_by("priority").values()
    assert counted == {2: 2, 9: 1}


@pytest.mark.parametrize("protocol", ["bullmq", "bull"])
def test_schedulers_are_read(queue: BullQueue) -> None:
    queue.upsert_scheduler("daily", every=86_400_000)

    (schedule,) = queue.schedulers()
    assert (schedule.id, schedule.every, schedule.next is not None) == ("daily", 86_400_000, True)


@pytest.mark.parametrize("protocol", ["bullmq"])
def test_the_rate_limit_of_a_group_is_read(queue: BullQueue, client: Redis) -> None:
    keys, far = queue.handle.keys, 1 << 45
    client.zadd(keys["group_windows"], {"tenant": far})
    client.zadd(keys["group_delayed"], {"1": 1})

    assert 0 < limited_groups_ms(queue.handle) < far


@pytest.mark.parametrize("protocol", ["bullmq"])
def test_settings_of_the_server_are_read(queue: BullQueue) -> None:
    connection = queue.handle.connection

    found = list(eviction(Server(connection, connection.server_info(), queue.handle.keys.prefix)))

    assert found


@all_dialects
def test_jobs_are_read(queue: BullQueue, version: str) -> None:
    ids = queue.add_many([NewJob({"n": n}, delay=n * 60_000) for n in range(3)]).ids

    delayed = queue.page("delayed")
    waiting = queue.page("wait")

    assert [(job.id, job.data, job.delay) for job in (*waiting, *delayed)] == [
        (ids[n], {"n": n}, n * 60_000) for n in range(3)
    ]
