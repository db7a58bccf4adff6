"""A slot without jobs waits for signals: it starts a job, and stops, on a signal and not by polling."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from redis import Redis

from spark_bull import BullQueue, EmbeddedRedis
from spark_bull.run.slot.slot_report import Failures, SlotReport, SlotStats
from tests.support.wait import wait_until
from tests.support.work_bench import each_dialect
from tests.support.worker import OurWorker

HOURS_S = 10_000.0


@pytest.fixture(autouse=True)
def _only_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_bull.run.slot.slot_queue.IDLE_S", HOURS_S)


@each_dialect
def test_an_idle_slot_starts_a_job_and_stops_on_signals(queue: BullQueue, client: Redis) -> None:
    with OurWorker(queue.handle, lambda job: job.data) as worker:
        for count in (1, 2):
            wait_until(lambda: is_blocked(client, *worker.loop.clients), "the slot to wait")
            queue.add({"n": count})
            wait_until(lambda count=count: queue.counts()["completed"] == count, "the job")
        wait_until(lambda: is_blocked(client, *worker.loop.clients), "the slot to wait")
    assert worker.stats.completed == 2


def test_an_idle_slot_wakes_when_the_next_job_is_due(queue: BullQueue, client: Redis) -> None:
    with OurWorker(queue.handle) as worker:
        wait_until(lambda: is_blocked(client, *worker.loop.clients), "the slot to wait")
        queue.add({}, delay=700)
        wait_until(lambda: queue.counts()["completed"] == 1, "the job")


def is_blocked(client: Redis, client_id: int = 0) -> bool:
    return any(one["id"] == str(client_id) and "b" in one["flags"] for one in client.client_list())


def test_a_report_that_redis_refuses_is_sent_once_a_second(
    own_redis: Callable[..., EmbeddedRedis], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 1_000.0
    monkeypatch.setattr("spark_bull.run.slot.slot_report.monotonic_s", lambda: now)
    url = own_redis().url
    with Redis.from_url(url) as client, BullQueue("q", url=url, protocol="bullmq") as queue:
        report = SlotReport(queue.handle, "w", 1, 0, SlotStats(), Failures(), {})
        client.execute_command("ACL", "SETUSER", "default", "-hset")
        for _ in range(3):
            report.publish_busy([])
        assert len(caplog.messages) == 1
        now += 2
        report.publish_busy([])
        assert len(caplog.messages) == 2
