"""Writes that are killed at any call and then repeated, as a scheduler does: `onFinish` and `sequenceBy` hold."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable

import pytest
from redis import Redis

from spark_bull import BullQueue, RunningJob
from tests.faults.programs import kill_and_repeat, rows_of
from tests.support.job_order import orders
from tests.support.wait import wait_until
from tests.support.worker import OurWorker

JOBS = 20
#: Calls of scripts at which a write is killed: while it stages or adds jobs, and at the end of the longest write.
CALLS = (2, 7, 9, 12, 16)


@pytest.fixture
def options(redis_url: str, prefix: str) -> dict[str, str]:
    return {"url": redis_url, "prefix": prefix, "queue": "q", "chunkSize": "4", "txnAppId": "app"}


@pytest.mark.parametrize(
    ("delivery", "when"),
    [
        ("exactly-once", "after"),
        ("at-least-once", "before"),
        pytest.param("exactly-once", "before", marks=pytest.mark.rest),
        pytest.param("at-least-once", "after", marks=pytest.mark.rest),
    ],
)
def test_the_callback_of_a_killed_write_runs_once_after_its_last_job(
    queue: BullQueue, open_queue: Callable[..., BullQueue], options: dict[str, str], delivery: str, when: str
) -> None:
    options |= {"delivery": delivery, "onFinish": json.dumps({"queue": "report"})}
    callbacks, killed = open_queue("report", "bullmq"), list[bool]()
    #: For each callback, the jobs that have ended, and all jobs.
    reports: list[tuple[int, int]] = []

    def report(job: RunningJob) -> None:
        counts = queue.counts()
        reports.append((counts["completed"], sum(counts.values())))

    with OurWorker(queue.handle, lambda job: None, chunk_size=50), OurWorker(callbacks.handle, report):
        for version, call in enumerate(CALLS):
            killed.append(kill_and_repeat(options | {"txnVersion": str(version)}, JOBS, call, when))
            ended = f"the callback of a write that was killed {when} call {call}"
            wait_until(lambda version=version: callbacks.counts()["completed"] > version, ended)
    assert all(killed[:-1])
    assert len(reports) == len(CALLS)
    assert all(ended == added for ended, added in reports)
    if delivery == "exactly-once":
        assert killed[-1]
        assert [ended for ended, _ in reports] == [n * JOBS for n in range(1, len(CALLS) + 1)]


@pytest.mark.parametrize("when", [pytest.param("before", marks=pytest.mark.rest), "after"])
def test_the_order_is_kept_when_writes_are_killed_and_repeated(
    queue: BullQueue, client: Redis, options: dict[str, str], when: str
) -> None:
    expected = defaultdict(list)
    with OurWorker(queue.handle, lambda job: None, concurrency=4):
        killed = [
            kill_and_repeat(options | {"sequenceBy": "key", "txnVersion": str(version)}, JOBS, call, when)
            for version, call in enumerate(CALLS)
        ]
        wait_until(lambda: queue.counts()["completed"] == JOBS * len(CALLS), "all jobs")
    for row in rows_of(JOBS) * len(CALLS):
        expected[row["key"]].append(row["n"])
    assert all(killed[:-1])
    assert orders(client, queue, lambda data: data["key"]) == expected
