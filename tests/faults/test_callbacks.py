"""Crashes of writes with `onFinish`: the callback runs once, after the last job."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from spark_bull import BullQueue, RunningJob
from tests.faults.programs import kill_and_repeat
from tests.support.wait import wait_until
from tests.support.worker import OurWorker

JOBS, CHUNK = 20, 4
#: Calls of scripts at which a write is killed, while it stages or adds jobs, and around its end.
CALLS = (2, 7, 9, 12, 16)


class Batch:
    """A queue, and one of callbacks, with a worker each. `reports`: for each callback, the ended jobs, and all."""

    def __init__(self, url: str, prefix: str, delivery: str) -> None:
        self.options = {
            "url": url,
            "prefix": prefix,
            "queue": "q",
            "delivery": delivery,
            "chunkSize": str(CHUNK),
            "onFinish": json.dumps({"queue": "report"}),
            "txnAppId": "batch",
        }
        self.queues = [BullQueue(name, url=url, prefix=prefix, protocol="bullmq") for name in ("q", "report")]
        self.reports: list[tuple[int, int]] = []

    def report(self, job: RunningJob) -> None:
        jobs, _ = self.queues
        counts = jobs.counts()
        self.reports.append((counts["completed"], sum(counts.values())))

    def __enter__(self) -> Batch:
        jobs, report = self.queues
        self.workers = [OurWorker(jobs.handle, lambda job: None, chunk_size=50), OurWorker(report.handle, self.report)]
        for worker in self.workers:
            worker.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        for worker in self.workers:
            worker.__exit__(*error)
        for queue in self.queues:
            queue.close()


@pytest.fixture
def batch(redis_url: str, prefix: str, delivery: str) -> Iterator[Batch]:
    with Batch(redis_url, prefix, delivery) as batch:
        yield batch


def crash_and_repeat(batch: Batch, version: int, call: int, when: str) -> bool:
    """A write is killed, and then repeated, as a scheduler does. Returns whether it was killed."""
    options = {**batch.options, "txnVersion": str(version)}
    before = len(batch.reports)
    is_killed = kill_and_repeat(options, JOBS, call, when)
    wait_until(lambda: len(batch.reports) > before, f"the callback of a write that was killed {when} call {call}")
    wait_until(lambda: batch.queues[1].counts()["completed"] == before + 1, "the callback to end")
    ended, added = batch.reports[-1]
    assert ended == added
    return is_killed


@pytest.mark.parametrize(
    ("delivery", "when"),
    [
        ("exactly-once", "after"),
        ("at-least-once", "before"),
        pytest.param("exactly-once", "before", marks=pytest.mark.rest),
        pytest.param("at-least-once", "after", marks=pytest.mark.rest),
    ],
)
def test_the_callback_of_a_killed_write_runs_once(batch: Batch, delivery: str, when: str) -> None:
    killed = [crash_and_repeat(batch, n, call, when) for n, call in enumerate(CALLS)]
    assert any(killed)
    assert len(batch.reports) == len(killed)
    if delivery == "exactly-once":
        assert batch.reports == [(n * JOBS, n * JOBS) for n in range(1, len(killed) + 1)]
