"""Crashes of writes with `sequenceBy`: each job runs once, in the order of the rows."""

from __future__ import annotations

from collections import defaultdict

import pytest
from redis import Redis

from spark_bull.core.queue.bull_queue import BullQueue
from tests.faults.programs import kill_and_repeat, rows_of
from tests.support.job_order import orders
from tests.support.wait import wait_until
from tests.support.worker import OurWorker

JOBS, CHUNK, CALLS = 20, 4, 16


@pytest.mark.parametrize("when", [pytest.param("before", marks=pytest.mark.rest), "after"])
def test_the_order_is_kept_when_writes_are_killed_and_repeated(
    queue: BullQueue, client: Redis, redis_url: str, prefix: str, when: str
) -> None:
    options = {"url": redis_url, "prefix": prefix, "queue": "q", "chunkSize": str(CHUNK), "sequenceBy": "key"}
    expected = defaultdict(list)
    killed = []
    with OurWorker(queue.handle, lambda job: None, concurrency=4):
        for version, call in enumerate(range(1, CALLS, 4)):
            given = {**options, "txnAppId": "app", "txnVersion": str(version)}
            killed.append(kill_and_repeat(given, JOBS, call, when))
            for row in rows_of(JOBS):
                expected[row["key"]].append(row["n"])
        wait_until(lambda: queue.counts()["completed"] == JOBS * len(killed), "all jobs")
    assert any(killed)
    assert orders(client, queue, lambda data: data["key"]) == expected
