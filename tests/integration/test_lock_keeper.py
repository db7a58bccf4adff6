"""Locks are extended while jobs run; a lost lock is logged, unless its job has just been settled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import pytest

from spark_bull import BullQueue, NewJob, RunningJob
from spark_bull.core.model.limits import WorkSettings
from spark_bull.core.model.outcomes import Claim
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.work.claim import extend, work
from spark_bull.core.queue.work.claim_ledger import ClaimLedger
from spark_bull.run.claims import claimer, lock_keeper
from spark_bull.run.claims.claimer import Claimer
from spark_bull.run.slot import queue_calls
from tests.support.wait import wait_until
from tests.support.worker import OurWorker

LOCK_MS = 3_600_000
#: Shorter than the worker's, so that the thread which extends locks looks at it at once.
OWN_MS = LOCK_MS // 2
#: So short that locks are extended repeatedly during a test.
SHORT_MS = 30
#: So large that a chunk is settled in parts.
LARGE = "x" * 2_000_000


@pytest.fixture
def lost_locks_logged(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """The log messages about lost locks."""
    return lambda: [text for record in caplog.records if "lost its lock" in (text := record.getMessage())]


@pytest.fixture
def extended(queue: BullQueue, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The jobs whose locks are extended, and by how many ms."""
    found: list[tuple[str, int]] = []

    def extend_noted(handle: QueueHandle, token: str, job_ids: Sequence[str], lock_ms: int) -> list[str]:
        if is_of(queue, handle):
            found.extend((job_id, lock_ms) for job_id in job_ids)
        return extend(handle, token, job_ids, lock_ms)

    monkeypatch.setattr(lock_keeper, "extend", extend_noted)
    return found


def is_of(queue: BullQueue, handle: QueueHandle) -> bool:
    """Whether a call is of this test: the threads of other tests go on."""
    return handle.keys.base == queue.handle.keys.base


@dataclass
class LateAnswers:
    """The lock of the first job is extended after the job was settled; the reply comes before (`first`) or after that
    of the settling call."""

    queue: BullQueue
    first: bool
    calls: int = 0
    asked: Event = field(default_factory=Event)
    settled: Event = field(default_factory=Event)
    answer_taken: Event = field(default_factory=Event)
    settling_over: Event = field(default_factory=Event)

    def extend(self, handle: QueueHandle, token: str, job_ids: Sequence[str], lock_ms: int) -> list[str]:
        if not is_of(self.queue, handle):
            return extend(handle, token, job_ids, lock_ms)
        self.calls += 1
        if self.calls > 1:
            self.answer_taken.set()
            return []
        self.asked.set()
        wait_until(self.settled.is_set, "the first job to be settled")
        gone = extend(handle, token, job_ids, LOCK_MS)
        assert len(gone) == 1
        if not self.first:
            wait_until(self.settling_over.is_set, "the loop to go on")
        return gone

    def work(self, handle: QueueHandle, *args: Any, **options: Any) -> Claim:
        claim = work(handle, *args, **options)
        if self.asked.is_set() and not self.settled.is_set():
            self.settled.set()
            if self.first:
                wait_until(self.answer_taken.is_set, "the answer about locks to be taken")
        return claim

    def processor(self, job: RunningJob) -> Any:
        if job.data["n"] == 0:
            wait_until(self.asked.is_set, "locks to be extended")
            return LARGE
        self.settling_over.set()
        wait_until(self.answer_taken.is_set, "the answer about locks to be taken")
        return None


def keep_often(worker: OurWorker) -> None:
    """Lets the lock keeper of this worker extend locks every few ms."""
    (queue,) = worker.loop.queues
    queue.keeper._lock_ms = queue.keeper._shortest_ms = SHORT_MS


@pytest.mark.parametrize("first", [True, False], ids=["before the settling call's", "after the settling call's"])
def test_a_job_settled_while_its_lock_was_to_be_extended_is_not_lost(
    queue: BullQueue, monkeypatch: pytest.MonkeyPatch, lost_locks_logged: Callable[[], list[str]], first: bool
) -> None:
    answers = LateAnswers(queue, first)
    monkeypatch.setattr(lock_keeper, "extend", answers.extend)
    monkeypatch.setattr(queue_calls, "work", answers.work)
    queue.add_many(NewJob({"n": n}) for n in range(2))
    worker = OurWorker(queue.handle, answers.processor, chunk_size=2, lock_ms=LOCK_MS)
    keep_often(worker)
    with worker:
        wait_until(lambda: queue.counts()["completed"] == 2, "both jobs to complete")
    assert (worker.stats.completed, worker.stats.lost) == (2, 0)
    assert lost_locks_logged() == []


def test_a_job_whose_lock_is_lost_is_logged_and_skipped(
    queue: BullQueue, monkeypatch: pytest.MonkeyPatch, lost_locks_logged: Callable[[], list[str]]
) -> None:
    def extend_long(handle: QueueHandle, token: str, job_ids: Sequence[str], _lock_ms: int) -> list[str]:
        return extend(handle, token, job_ids, LOCK_MS)

    ran: list[int] = []

    def processor(job: RunningJob) -> None:
        ran.append(job.data["n"])
        if job.data["n"] == 0:
            queue.handle.connection.call("SET", queue.handle.keys.lock(others[0]), "of somebody else")
            wait_until(lost_locks_logged, "the lost lock to be logged")

    monkeypatch.setattr(lock_keeper, "extend", extend_long)
    _, *others = queue.add_many(NewJob({"n": n}) for n in range(3)).ids
    worker = OurWorker(queue.handle, processor, chunk_size=3, lock_ms=LOCK_MS)
    keep_often(worker)
    with worker:
        wait_until(lambda: queue.counts()["completed"] == 2, "the other jobs to complete")
    assert ran == [0, 2]
    assert len(lost_locks_logged()) == 1
    assert f"job {others[0]} lost its lock" in lost_locks_logged()[0]


def test_workers_and_claiming_queries_extend_a_lock_by_the_duration_that_its_job_has(
    queue: BullQueue, extended: list[tuple[str, int]]
) -> None:
    jobs = [NewJob({}, lock_ms=OWN_MS), NewJob({})]
    own, plain = queue.add_many(jobs).ids

    def processor(job: RunningJob) -> None:
        wait_until(lambda: job.id in dict(extended), "the lock to be extended")

    with OurWorker(queue.handle, processor, chunk_size=2, lock_ms=LOCK_MS):
        wait_until(lambda: queue.counts()["completed"] == 2, "both jobs to complete")
    assert dict(extended) == {own: OWN_MS, plain: LOCK_MS}
    extended.clear()
    own, plain = queue.add_many(jobs).ids
    claiming = claimer_of(queue)
    assert claiming.claim(10) == 2
    wait_until(lambda: len(extended) == 2, "the locks to be extended")
    assert dict(extended) == {own: OWN_MS, plain: LOCK_MS}
    assert claiming.held() == 2, "its jobs may outlast their batch"


def claimer_of(queue: BullQueue) -> Claimer:
    return Claimer(ClaimLedger(queue.handle, "reader"), WorkSettings("reader", LOCK_MS), 10)


def test_a_claiming_query_extends_the_locks_of_its_first_jobs_before_it_claims_the_last(
    queue: BullQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    active: list[int] = []
    hold = claimer.QueryLockKeeper.hold

    def hold_noted(keeper: claimer.QueryLockKeeper, *claimed: Any, **own: Any) -> None:
        hold(keeper, *claimed, **own)
        active.append(queue.counts()["active"])

    monkeypatch.setattr(claimer.QueryLockKeeper, "hold", hold_noted)
    queue.add_many([NewJob({})] * 25)
    claiming = claimer_of(queue)
    assert claiming.claim(30) == 25
    assert active == [10, 20, 25]


@pytest.mark.parametrize(("enough", "claimed"), [(15, 20), (100, 40)])
def test_a_batch_that_could_begin_has_the_jobs_that_were_claimed_ahead_until_then(
    queue: BullQueue, monkeypatch: pytest.MonkeyPatch, enough: int, claimed: int
) -> None:
    hold = claimer.QueryLockKeeper.hold

    def hold_when_awaited(keeper: claimer.QueryLockKeeper, *jobs: Any, **own: Any) -> None:
        wait_until(claiming._is_awaited.is_set, "the next batch to wait")
        hold(keeper, *jobs, **own)

    monkeypatch.setattr(claimer.QueryLockKeeper, "hold", hold_when_awaited)
    queue.add_many([NewJob({})] * 50)
    claiming = claimer_of(queue)
    claiming.claim_ahead(40, enough)
    assert claiming.end() == claimed
    assert claiming.has_more
    assert sum(portion.jobs for portion in claiming.portions(0, claimed)) == claimed
    claiming.claim_ahead(40, enough)
    assert claiming.end() == min(50, 2 * claimed)


def test_a_batch_ends_at_the_size_of_jobs_that_is_kept_in_memory(
    queue: BullQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claimer, "MAX_PACKED_BYTES", 1)
    queue.add_many([NewJob({})] * 25)
    claiming = claimer_of(queue)
    for start, claimed in ((0, 10), (10, 10), (20, 5)):
        assert claiming.claim(30) == claimed
        assert sum(portion.jobs for portion in claiming.portions(start, start + claimed)) == claimed


def test_locks_are_extended_in_a_third_of_the_time_that_the_shortest_one_lasts(queue: BullQueue) -> None:
    keeper, waits = lock_keeper.LockKeeper(queue.handle, 30_000), list[float | None]()

    def wait(timeout: float | None) -> None:
        waits.append(timeout)
        keeper._is_over = len(waits) == 2
        keeper.hold("token", ["a"], own_ms={"a": 3_000})

    keeper._wake.wait = wait
    keeper._keep()
    assert waits == [10, 1]
