"""Ageing: a Promoter raises the priority of jobs that have waited for long."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from spark_bull import BullQueue, NewJob, OptionError, Promoter
from spark_bull.core.clock import epoch_ms
from spark_bull.core.queue.work import service_verbs
from spark_bull.run.services.ageing import Ageing
from tests.support.wait import wait_until

HOUR = 3_600_000


@pytest.fixture
def queue(redis_url: str, prefix: str) -> Iterator[BullQueue]:
    with BullQueue("q", url=redis_url, prefix=prefix, protocol="bullmq") as queue:
        yield queue


def waiting(queue: BullQueue) -> list[tuple[Any, int]]:
    """The payload and the priority of the jobs, in the order in which workers take them."""
    return [(job.data, job.priority) for job in queue.page("prioritized")]


def aged(queue: BullQueue, **ageing: Any) -> int:
    settings = queue.handle.connection.settings
    promoter = Promoter(settings.url, ["q"], prefix=queue.handle.keys.prefix, rescue=False, ageing=ageing)
    return promoter.once().aged


@pytest.mark.parametrize(("after_ms", "interval_s"), [(1, 1), (30_000, 3), (HOUR, 60)])
def test_jobs_are_looked_at_ten_times_until_they_age(after_ms: int, interval_s: float) -> None:
    assert Ageing(after_ms, priority=1).interval_s == interval_s


def test_jobs_that_have_waited_for_long_get_a_higher_priority(queue: BullQueue) -> None:
    now = epoch_ms()
    old, young = now - 2 * HOUR, now - HOUR // 2
    queue.add_many(
        [
            NewJob("urgent", priority="critical", timestamp=old),
            NewJob("old high", priority="high", timestamp=old),
            NewJob("old low", priority="low", timestamp=old),
            NewJob("older low", priority="low", timestamp=old),
            NewJob("young low", priority="low", timestamp=young),
            NewJob("behind it", priority="low", timestamp=old),
            NewJob("young normal", priority="normal", timestamp=young),
        ]
    )
    assert aged(queue, after_ms=HOUR, priority="high") == 2
    assert waiting(queue) == [
        ("urgent", 1),
        ("old high", 2),
        ("old low", 2),
        ("older low", 2),
        ("young normal", 4),
        ("young low", 5),
        ("behind it", 5),
    ]
    assert aged(queue, after_ms=HOUR, priority="high") == 0
    # The first one of its priority has now waited for so long, too.
    assert aged(queue, after_ms=HOUR // 4, priority="high") == 3
    assert aged(queue, after_ms=HOUR // 4) == 6
    assert {priority for _, priority in waiting(queue)} == {1}


def test_a_delay_is_no_waiting_time(queue: BullQueue, client: Redis) -> None:
    old = epoch_ms() - 10 * HOUR
    delayed = queue.add("delayed", priority=7, timestamp=old, delay=9 * HOUR + HOUR // 2 + HOUR // 4)
    queue.promote(delayed)
    assert aged(queue, after_ms=HOUR) == 0
    assert aged(queue, after_ms=HOUR // 10) == 1


def test_all_jobs_of_many_priorities_age(queue: BullQueue, client: Redis) -> None:
    old = epoch_ms() - 2 * HOUR
    queue.add_many(NewJob(n, priority=2 + n // 3, timestamp=old if n % 2 else None) for n in range(90))
    client.zadd(queue.handle.keys["prioritized"], {f"gone{n}": 3 * 2**32 for n in range(20)})
    moved, first, calls = 0, 1, 0
    while first:
        some, first = service_verbs.age(queue.handle, 1, HOUR, first=first, limit=7)
        moved, calls = moved + some, calls + 1
    # Of each three jobs of a priority, an old one comes first, or is behind a young one.
    assert moved == 15
    assert calls >= 90 // 3 // 7
    assert client.zcard(queue.handle.keys["prioritized"]) == 110


def test_a_running_promoter_ages_jobs(queue: BullQueue) -> None:
    queue.add("late", priority=9, timestamp=epoch_ms() - HOUR)
    settings = queue.handle.connection.settings
    ageing = {"after_ms": HOUR // 2}
    with Promoter(settings.url, ["q"], prefix=queue.handle.keys.prefix, ageing=ageing) as promoter:
        wait_until(lambda: promoter.done.aged == 1, "the job to age")
    assert waiting(queue) == [("late", 1)]


def test_jobs_of_bull_do_not_age(redis_url: str, prefix: str, caplog: pytest.LogCaptureFixture) -> None:
    with BullQueue("q", url=redis_url, prefix=prefix, protocol="bull") as queue:
        queue.add("old", priority=9, timestamp=epoch_ms() - HOUR)
        with caplog.at_level(logging.WARNING, "spark_bull"):
            assert aged(queue, after_ms=1) == 0
    assert (
        "expected no `ageing`: bull keeps jobs with a priority among the others, so that they do not age" in caplog.text
    )


def test_wrong_rules_are_refused(redis_url: str) -> None:
    for ageing, message in [
        ({}, "expected `ageing` to be an object such as"),
        ({"after_ms": 0}, "expected `ageing` to be an object such as"),
        ({"after_ms": "1h"}, "expected `ageing` to be an object such as"),
        ({"after_ms": 5, "to": 1}, "expected `ageing` to be an object such as"),
        ("1h", "expected `ageing` to be an object such as"),
        ({"after_ms": 5, "priority": "urgent"}, "`ageing`: expected `priority` to be .* got: 'urgent'"),
        ({"after_ms": 5, "priority": 0}, "expected the priority of `ageing` to be at least 1, got: 0"),
    ]:
        with pytest.raises(OptionError, match=message):
            Promoter(redis_url, ["q"], ageing=ageing)
