"""Jobs that may run at most once: their side effects never happen twice, however their workers end."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from random import Random

import pytest
from redis import Redis

from spark_bull import BullQueue, NewJob
from tests.faults.slots import starts, wait_until_started
from tests.support.forked_programs import ForkedProcess
from tests.support.wait import wait_until
from tests.support.work_bench import rescue_all
from tests.support.worker import OurWorker

StartSlot = Callable[..., ForkedProcess]
CONCURRENCIES = (1, 8)
#: More jobs than must end before a slot is killed.
JOBS_PER_KILL = 1_000


@pytest.fixture(params=["bull", "bullmq"])
def queue(request: pytest.FixtureRequest, redis_url: str, prefix: str) -> Iterator[BullQueue]:
    with BullQueue("q", url=redis_url, prefix=prefix, protocol=request.param, delivery="at-most-once") as queue:
        yield queue


def finished(queue: BullQueue) -> int:
    counts = queue.counts()
    return counts["completed"] + counts["failed"]


@pytest.mark.parametrize("kills", [3, pytest.param(50, marks=pytest.mark.soak)])
def test_side_effects_happen_at_most_once_although_workers_are_killed(
    queue: BullQueue, start_slot: StartSlot, client: Redis, prefix: str, kills: int
) -> None:
    """Slots are killed while they process jobs; another worker processes the rest."""
    random = Random(kills)
    ids: list[str] = []
    for _ in range(kills):
        ids += queue.add_many(NewJob({"n": n}) for n in range(JOBS_PER_KILL)).ids
        goal = finished(queue) + random.randrange(1, 400)
        concurrency = random.choice(CONCURRENCIES)
        with start_slot(concurrency, "brief") as process:
            wait_until(lambda goal=goal: finished(queue) >= goal, "the slot to be busy")
            assert process.end_by(signal.SIGKILL) == -signal.SIGKILL
        rescue_all(queue.handle, [job.id for job in queue.page("active")])
    with OurWorker(queue.handle, lambda job: client.hincrby(f"{prefix}:starts", job.id), chunk_size=200):
        wait_until(lambda: finished(queue) == len(ids), "another worker to process the rest")
    started = starts(client, prefix)
    assert set(started.values()) == {1}
    counts = queue.counts()
    # Each completed job has started; those that were active when their worker was killed have failed.
    assert counts["completed"] <= len(started) <= len(ids)
    assert {job.failed_reason for job in queue.page("failed")} <= {"job stalled more than allowable limit"}


@pytest.mark.parametrize("concurrency", [1, 3])
def test_jobs_that_have_begun_fail_when_their_process_is_to_end(
    queue: BullQueue, start_slot: StartSlot, concurrency: int
) -> None:
    queue.add_many(NewJob({"n": n}) for n in range(3))
    with start_slot(concurrency) as process:
        wait_until_started(queue, 3, concurrency)
        assert process.end_by(signal.SIGTERM) == 128 + signal.SIGTERM
    counts = queue.counts()
    assert (counts["failed"], counts["wait"], counts["active"]) == (concurrency, 3 - concurrency, 0)
    assert all("may run at most once" in (job.failed_reason or "") for job in queue.page("failed"))
