"""Crashes of writes with `onFinish`: the callback runs once, after the last job."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from spark_bull import BullQueue, RunningJob
from tests.support.forked_programs import was_killed, write_and_die, write_rows
from tests.support.wait import wait_until
from tests.support.worker import OurWorker

JOBS, CHUNK = 20, 4
#: Calls of scripts at which a write is killed, while it stages or adds jobs, and around its end.
CALLS = (2, 7, 9, 12, 16)
SOAK_JOBS, SOAK_CHUNK, SOAK_POINTS = 100_000, 500, 20

each_delivery = pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])


class Batch:
    """A queue, and one of callbacks, with a worker each. `reports`: for each callback, the ended jobs, and all."""

    def __init__(self, url: str, prefix: str, delivery: str, chunk: int) -> None:
        self.options = {
            "url": url,
            "prefix": prefix,
            "queue": "q",
            "delivery": delivery,
            "chunkSize": str(chunk),
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
def batch(redis_url: str, prefix: str, delivery: str, chunk: int) -> Iterator[Batch]:
    with Batch(redis_url, prefix, delivery, chunk) as batch:
        yield batch


def crash_and_repeat(batch: Batch, version: int, jobs: int, call: int, when: str) -> bool:
    """A write is killed, and then repeated, as a scheduler does. Returns whether it was killed."""
    options = {**batch.options, "txnVersion": str(version)}
    before = len(batch.reports)
    is_killed = was_killed(write_and_die, options, jobs, call, when)
    write_rows(options, jobs)
    wait_until(lambda: len(batch.reports) > before, f"the callback of a write that was killed {when} call {call}")
    wait_until(lambda: batch.queues[1].counts()["completed"] == before + 1, "the callback to end")
    ended, added = batch.reports[-1]
    assert ended == added
    return is_killed


@pytest.mark.parametrize("chunk", [CHUNK])
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
    killed = [crash_and_repeat(batch, n, JOBS, call, when) for n, call in enumerate(CALLS)]
    assert any(killed)
    assert len(batch.reports) == len(killed)
    if delivery == "exactly-once":
        assert batch.reports == [(n * JOBS, n * JOBS) for n in range(1, len(killed) + 1)]


@pytest.mark.soak
@each_delivery
@pytest.mark.parametrize("chunk", [SOAK_CHUNK])
def test_the_callback_of_a_large_killed_write_runs_once(batch: Batch, delivery: str) -> None:
    random = Random(12)
    calls = SOAK_JOBS // SOAK_CHUNK * (2 if delivery == "exactly-once" else 1)
    for version in range(SOAK_POINTS):
        crash_and_repeat(batch, version, SOAK_JOBS, random.randrange(1, calls), random.choice(["before", "after"]))
    assert len(batch.reports) == SOAK_POINTS
    if delivery == "exactly-once":
        assert batch.reports == [(n * SOAK_JOBS, n * SOAK_JOBS) for n in range(1, SOAK_POINTS + 1)]
