"""Many job schedulers that run every second: each time runs once."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import NamedTuple

import pytest

from spark_bull import BullQueue, EmbeddedRedis, Promoter
from spark_bull.run.job.running_job import RunningJob
from tests.support.wait import wait_until
from tests.support.worker import OurWorker

SECOND = 1_000


class Run(NamedTuple):
    """A job of a schedule: when it was due, was added, and was claimed by a worker, ms since 1970; 0: not yet."""

    due: int
    added: int
    claimed: int


@contextmanager
def workers(queue: BullQueue, number: int, started: Counter[str]) -> Iterator[None]:
    """Workers that count the jobs which they start."""

    def count(job: RunningJob) -> None:
        started[job.id] += 1

    handle = queue.handle
    with ExitStack() as running:
        promoter = Promoter(
            handle.connection.settings.url, [queue.name], prefix=handle.keys.prefix, protocol=queue.protocol
        )
        running.enter_context(promoter)
        for _ in range(number):
            running.enter_context(OurWorker(handle, count, chunk_size=200, lock_ms=600_000))
        yield


def runs_of(queue: BullQueue) -> dict[str, list[Run]]:
    """All jobs of each job scheduler by the times when they were due."""
    runs: dict[str, list[Run]] = defaultdict(list)
    for state in ("completed", "active", "wait", "delayed"):
        for job in queue.page(state):
            schedule, _, due = job.id.rpartition(":")
            runs[schedule].append(Run(int(due), job.timestamp or 0, job.processed_on or 0))
    return {schedule: sorted(found) for schedule, found in runs.items()}


@pytest.mark.parametrize("protocol", ["bull", "bullmq"])
@pytest.mark.parametrize(
    ("schedulers", "seconds"),
    [pytest.param(30, 3, marks=pytest.mark.rest), pytest.param(1_000, 60, marks=pytest.mark.soak)],
)
def test_each_second_of_each_scheduler_runs_once(
    own_redis: type[EmbeddedRedis], protocol: str, schedulers: int, seconds: int
) -> None:
    started: Counter[str] = Counter()
    with BullQueue("q", url=own_redis().url, protocol=protocol) as queue:
        # Without an offset, times of BullMQ depend on when the job scheduler was created.
        offset = 500 if protocol == "bullmq" else None
        for n in range(schedulers):
            queue.upsert_scheduler(f"s{n}", every=SECOND, offset=offset)
        first = (int(time.time()) + 2) * SECOND + (offset or 0)
        until = first + seconds * SECOND
        with workers(queue, 2, started):
            unfinished = ("ZCOUNT", queue.handle.keys["repeats"], "-inf", until + SECOND - 1)
            wait_until(lambda: queue.handle.connection.call(*unfinished) == 0, "the last second to be over")
        runs = runs_of(queue)
    ran = skipped = late = 0
    assert len(runs) == schedulers
    for found in runs.values():
        # No second of the window is before the first job or after the last one, and none has two jobs.
        assert found[0].due <= first
        assert found[-1].due >= until
        assert len({run.due for run in found}) == len(found)
        for run, following in pairwise(found):
            # As in Node, times are skipped that were over when the job scheduler went on.
            is_next = following.due == run.due + SECOND
            assert is_next or following.added >= run.due + SECOND
            skipped += len(range(max(first, run.due + SECOND), min(until, following.due), SECOND))
            if first <= run.due < until:
                ran, late = ran + 1, max(late, run.claimed - run.due)
    assert {job_id: times for job_id, times in started.items() if times > 1} == {}
    print(f"\n{protocol}: {ran:,} runs of {schedulers:,} schedulers in {seconds} s, {skipped} skipped, {late} ms late")
    assert ran + skipped == schedulers * seconds
