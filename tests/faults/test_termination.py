"""A process that gets SIGTERM returns its jobs to their queue at once."""

from __future__ import annotations

import signal
from collections.abc import Callable
from threading import Event, Semaphore

import pytest
from redis import Redis

from spark_bull import BullQueue, Job, NewJob, RunningJob
from spark_bull.run.slot.status import latest, slots_of
from tests.faults.slots import LEAVING, POISON, starts, wait_until_started
from tests.support.forked_programs import ForkedProcess
from tests.support.wait import PATIENCE_S, wait_until
from tests.support.worker import OurWorker

JOBS = 3

StartSlot = Callable[..., ForkedProcess]

each_dialect = pytest.mark.parametrize(
    "queue", ["bull", "bullmq", pytest.param("bull-1", marks=pytest.mark.rest)], indirect=True
)


def by_n(queue: BullQueue) -> list[Job]:
    return sorted(queue.page("completed"), key=lambda job: int(job.parsed()["n"]))


def test_jobs_that_have_ended_are_settled_although_the_slot_has_not_taken_their_results(
    queue: BullQueue, start_slot: StartSlot, prefix: str, client: Redis
) -> None:
    queue.add_many(NewJob({"n": n}) for n in range(JOBS))
    with start_slot(JOBS, "unread") as process:
        wait_until(lambda: client.get(f"{prefix}:ended") == b"3", "all jobs to end")
        assert process.end_by(signal.SIGTERM) == 128 + signal.SIGTERM
    assert queue.counts()["completed"] == JOBS
    assert {job.stalled_counter for job in queue.page("completed")} == {0}


@each_dialect
@pytest.mark.parametrize(
    ("number", "concurrency", "kind", "closed"),
    [
        (signal.SIGTERM, 1, "state", [b"plain"]),
        (signal.SIGTERM, JOBS, "state, coroutine", [b"asynchronous"]),
        (signal.SIGHUP, JOBS, "endless", []),
    ],
)
def test_a_slot_returns_its_jobs_and_closes_its_state_when_its_process_is_to_end(
    queue: BullQueue,
    start_slot: StartSlot,
    client: Redis,
    prefix: str,
    concurrency: int,
    number: signal.Signals,
    kind: str,
    closed: list[bytes],
) -> None:
    ids = queue.add_many(NewJob({"n": n}) for n in range(JOBS)).ids
    with start_slot(concurrency, kind) as process:
        wait_until_started(queue, JOBS, concurrency)
        assert process.end_by(number) == 128 + number
    assert (queue.counts()["wait"], queue.counts()["active"]) == (JOBS, 0)
    assert client.lrange(f"{prefix}:closed", 0, -1) == closed
    assert not any(client.exists(queue.handle.keys.lock(job_id)) for job_id in ids)
    with OurWorker(queue.handle, lambda job: "elsewhere"):
        wait_until(lambda: queue.counts()["completed"] == JOBS, "another worker to process the jobs")
    # Those that were running have stalled.
    assert [job.stalled_counter for job in by_n(queue)] == [1] * concurrency + [0] * (JOBS - concurrency)
    if queue.protocol == "bullmq":
        assert {job.attempts_made for job in queue.page("completed")} == {1}


@pytest.mark.parametrize("concurrency", [1, 8])
def test_a_busy_slot_leaves_no_job_behind_when_its_process_is_to_end(
    queue: BullQueue, start_slot: StartSlot, prefix: str, client: Redis, concurrency: int
) -> None:
    """Its jobs are brief: it claims, starts and settles all the time."""
    rounds, more = 3, 1_500
    ids: list[str] = []
    for _ in range(rounds):
        # More than a slot ends until it gets the signal.
        ids += queue.add_many(NewJob({"n": n}) for n in range(more)).ids
        before = queue.counts()["completed"]
        with start_slot(concurrency, "brief") as process:
            wait_until(lambda before=before: queue.counts()["completed"] >= before + 50, "the slot to be busy")
            assert process.end_by(signal.SIGTERM) == 128 + signal.SIGTERM
        counts = queue.counts()
        assert (counts["active"], counts["failed"], counts["delayed"]) == (0, 0, 0)
        assert counts["wait"] + counts["completed"] == len(ids)
        assert not any(client.keys(f"{prefix}:q:*:lock"))
    waiting = queue.page("wait")
    assert waiting, "expected jobs to be left: add more of them"
    with OurWorker(queue.handle, lambda job: client.hincrby(f"{prefix}:starts", job.id), chunk_size=200):
        wait_until(lambda: queue.counts()["completed"] == len(ids), "another worker to process the rest")
    started = starts(client, prefix)
    assert set(started) == set(ids)
    # Those whose function had begun when the process got the signal.
    assert sum(started.values()) <= len(ids) + rounds * concurrency
    completed = queue.page("completed")
    assert {job.attempts_made for job in completed} == {1}
    assert sum(job.stalled_counter for job in completed) <= rounds * concurrency
    assert sum(job.attempts_started or 0 for job in completed) <= len(ids) + rounds * concurrency


@each_dialect
@pytest.mark.parametrize(
    ("kind", "concurrency"), [("poison", 1), pytest.param("poison", 8, marks=pytest.mark.rest), ("chunk", 1)]
)
def test_a_job_whose_process_always_gets_sigterm_fails_and_all_others_complete(
    queue: BullQueue, start_slot: StartSlot, prefix: str, client: Redis, kind: str, concurrency: int
) -> None:
    before, behind = 20, 400
    queue.add_many(NewJob({"n": n}) for n in range(before))
    poison = queue.add(POISON)
    queue.add_many(NewJob({"n": n}) for n in range(before, before + behind))

    def is_over() -> bool:
        counts = queue.counts()
        return counts["completed"] + counts["failed"] == before + behind + 1

    ended = 0
    while not is_over():
        with start_slot(concurrency, kind) as process:
            wait_until(lambda p=process: is_over() or p.wait(0) is not None, "the process or all jobs to end")
            ended += process.wait(0) == 128 + signal.SIGTERM
    counts = queue.counts()
    assert (counts["completed"], counts["failed"], counts["wait"], counts["active"]) == (before + behind, 1, 0, 0)
    (failed,) = queue.page("failed")
    assert (failed.id, failed.failed_reason) == (poison, "job stalled more than allowable limit")
    # By default, a job may stall once: the second stall fails it.
    assert (ended, failed.stalled_counter) == (2, 2)
    started = starts(client, prefix)
    assert started[poison] == 2
    if kind == "poison":
        # Jobs of the same claim that had not started were given back unharmed, and started once.
        assert sum(started.values()) <= before + behind + 2 + concurrency
        assert sum(job.stalled_counter for job in queue.page("completed")) < concurrency


@pytest.mark.parametrize("concurrency", [1, JOBS])
def test_a_slot_returns_its_jobs_when_its_worker_no_longer_waits_for_them(queue: BullQueue, concurrency: int) -> None:
    begun, released = Semaphore(0), Event()

    def blocking(job: RunningJob) -> None:
        begun.release()
        assert released.wait(PATIENCE_S)

    ids = queue.add_many(NewJob({"n": n}) for n in range(JOBS)).ids
    with OurWorker(queue.handle, blocking, chunk_size=JOBS, concurrency=concurrency) as worker:
        for _ in range(concurrency):
            assert begun.acquire(timeout=PATIENCE_S)
        wait_until(lambda: queue.counts()["active"] == JOBS, "the slot to claim all jobs")
        assert worker.control.request("end")

        def has_stopped() -> bool:
            return {slot["state"] for slot in latest(slots_of(queue.handle, worker.id))} == {"stopped"}

        wait_until(has_stopped, "the slot to return its jobs, while some run")
        assert (queue.counts()["wait"], queue.counts()["active"]) == (JOBS, 0)
        waiting = queue.page("wait")
        assert [job.id for job in waiting] == ids
        assert [job.stalled_counter for job in waiting] == [1] * concurrency + [0] * (JOBS - concurrency)
        released.set()
    # What they return is too late.
    assert (queue.counts()["wait"], queue.counts()["completed"]) == (JOBS, 0)


@pytest.mark.parametrize("concurrency", [1, JOBS])
def test_a_signal_to_a_process_that_a_processor_has_forked_ends_only_that_process(
    queue: BullQueue, start_slot: StartSlot, concurrency: int
) -> None:
    queue.add_many(NewJob({"n": n}) for n in range(JOBS))
    with start_slot(concurrency, "forking") as process:
        wait_until(lambda: not queue.counts()["wait"] + queue.counts()["active"], "the jobs to end, or their slot")
        assert process.end_by(signal.SIGTERM) == 128 + signal.SIGTERM
    jobs = by_n(queue)
    assert [(job.parsed("returnvalue"), job.stalled_counter) for job in jobs] == [(-signal.SIGTERM, 0)] * JOBS


@pytest.mark.parametrize(("concurrency", "kind"), [(1, "leaving"), (2, "leaving, coroutine")])
def test_a_process_that_a_processor_has_forked_ends_when_it_leaves_the_processor(
    queue: BullQueue, client: Redis, start_slot: StartSlot, prefix: str, concurrency: int, kind: str
) -> None:
    queue.add_many(NewJob({"n": n}) for n in range(len(LEAVING)))
    with start_slot(concurrency, kind):
        wait_until(lambda: queue.counts()["completed"] == len(LEAVING), "the jobs to complete")
    assert [job.parsed("returnvalue") for job in by_n(queue)] == [status for _, status in LEAVING]
    assert [*starts(client, prefix).values()] == [1] * len(LEAVING)
