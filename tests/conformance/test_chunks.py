"""A UDF waits for a minimum number of jobs, for a limited time."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from threading import Event
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from redis import Redis

from spark_bull import BullQueue, NewJob
from spark_bull.core.model.outcomes import Claim, Outcomes
from spark_bull.run.job.job_runner import FunctionRunner, JobFunction
from spark_bull.run.job.named_runner import NamedRunner
from spark_bull.run.job.running_job import RunningJob
from spark_bull.run.slot.chunk_loop import Processed
from spark_bull.run.slot.queue_calls import SCRIPT_JOBS
from spark_bull.run.slot.slot_queue import SlotQueue
from spark_bull.run.slot.slot_report import Failures, SlotStats
from spark_bull.spark.work.udf_runner import UdfRunner
from tests.support.traffic import script_work
from tests.support.wait import PATIENCE_S, wait_until
from tests.support.work_bench import each_dialect
from tests.support.worker import OurWorker

#: No test waits that long.
FOREVER_MS = int(2000 * PATIENCE_S)


@pytest.fixture
def other(queue: BullQueue, open_queue: Callable[..., BullQueue]) -> BullQueue:
    return open_queue("r", protocol=queue.protocol)


def add(queue: BullQueue, count: int) -> None:
    queue.add_many(NewJob({"n": n}) for n in range(count))


def udf(process: Callable[[list[int]], object]) -> UdfRunner:
    """A UDF that returns its payloads as texts, after `process` had them."""

    def run(n: pd.Series[int]) -> pd.Series[str]:
        process([int(value) for value in n])
        return n.astype(str)

    return UdfRunner(run, "pandas", pa.struct([pa.field("n", pa.int64())]), pa.string())


def sizes_into(found: list[int]) -> UdfRunner:
    """A UDF that notes how many payloads each call gets."""
    return udf(lambda numbers: found.append(len(numbers)))


def completed(queue: BullQueue, count: int) -> Callable[[], bool]:
    return lambda: queue.counts()["completed"] == count


@each_dialect
def test_a_half_of_a_chunk_that_ends_is_settled_before_the_other_half(
    queue: BullQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_bull.run.slot.chunk_loop.SETTLE_S", 0.0)

    def process(numbers: list[int]) -> None:
        if numbers == [7]:
            wait_until(lambda: queue.counts()["completed"] >= 4, "the first half to be settled")
        if 7 in numbers:
            raise ValueError("seven")

    add(queue, 8)
    with OurWorker(queue.handle, runner=udf(process), chunk_size=8):
        wait_until(lambda: queue.counts()["failed"] == 1, "the last job to fail")
        wait_until(completed(queue, 7), "the others")
    assert [str(job.failed_reason) for job in queue.page("failed")] == ["seven"]


def test_a_large_outcome_is_settled_before_the_next_job_of_its_chunk_starts(
    queue: BullQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_bull.run.slot.chunk_loop.SETTLE_S", float("inf"))
    chunk_bytes, settled = 10_000, list[int]()

    def process(job: RunningJob) -> str:
        settled.append(queue.counts()["completed"])
        return "x" * (2 * chunk_bytes if job.data["n"] == 1 else 1)

    add(queue, 3)
    with OurWorker(queue.handle, process, chunk_size=3, chunk_bytes=chunk_bytes):
        wait_until(completed(queue, 3), "all jobs")
    assert settled == [0, 0, 2]


@pytest.mark.parametrize("is_coroutine", [False, True])
def test_functions_of_a_chunk_end_when_their_jobs_are_returned(queue: BullQueue, is_coroutine: bool) -> None:
    """As when a worker on the driver no longer waits for them."""
    begun, ended = Event(), Event()

    def endless(job: RunningJob) -> None:
        begun.set()
        try:
            while True:
                time.sleep(0.01)
        finally:
            ended.set()

    async def endless_in_loop(job: RunningJob) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    functions: dict[str, JobFunction] = {"*": endless_in_loop if is_coroutine else endless}
    add(queue, 2)
    runner = NamedRunner(FunctionRunner(functions), {}, in_main_thread=False)
    with OurWorker(queue.handle, runner=runner, chunk_size=2) as worker:
        assert begun.wait(PATIENCE_S)
        wait_until(lambda: queue.counts()["active"] == 2, "both jobs to be claimed")
        assert worker.control.request("end")
        assert ended.wait(PATIENCE_S)
        wait_until(lambda: queue.counts()["wait"] == 2, "both jobs to return")
    assert worker.error is None


@pytest.mark.parametrize("queues", [1, 2])
def test_a_chunk_is_processed_as_soon_as_it_is_large_enough(queue: BullQueue, other: BullQueue, queues: int) -> None:
    sizes: list[int] = []
    add(queue, 2)
    handles = [queue.handle, other.handle][:queues]
    with OurWorker(handles, runner=sizes_into(sizes), chunk_size=10, min_chunk=5, chunk_wait_ms=FOREVER_MS):
        wait_until(lambda: queue.counts()["active"] == 2, "the slot to claim the first jobs")
        add(queue, 2)
        wait_until(lambda: queue.counts()["active"] == 4, "the slot to claim the next ones")
        assert sizes == []
        add(queue, 3)
        wait_until(completed(queue, 7), "all jobs")
    assert sizes == [7]


def test_a_chunk_that_stays_small_is_processed_after_the_wait_or_at_a_stop(queue: BullQueue) -> None:
    sizes: list[int] = []
    add(queue, 2)
    with OurWorker(queue.handle, runner=sizes_into(sizes), chunk_size=10, min_chunk=5, chunk_wait_ms=50):
        wait_until(completed(queue, 2), "the jobs")
    assert sizes == [2]
    add(queue, 3)
    with OurWorker(queue.handle, runner=sizes_into(sizes), chunk_size=10, min_chunk=5, chunk_wait_ms=FOREVER_MS):
        wait_until(lambda: queue.counts()["active"] == 3, "the slot to claim the jobs")
    assert sizes == [2, 3]
    assert queue.counts()["completed"] == 5


def test_a_chunk_of_large_jobs_ends_with_the_first_job_beyond_its_size(queue: BullQueue) -> None:
    sizes: list[int] = []
    # The first script claims less than a whole chunk.
    jobs = SCRIPT_JOBS + 40
    queue.add_many(NewJob({"n": n, "padding": "x" * 5_000}) for n in range(jobs))
    with OurWorker(queue.handle, runner=sizes_into(sizes), chunk_size=1_000):
        wait_until(completed(queue, jobs), "the jobs")
    assert sizes[0] == -(-(1 << 20) // 5_026)


@each_dialect
def test_a_large_chunk_is_returned_in_several_scripts_in_its_order(queue: BullQueue, client: Redis) -> None:
    jobs = 2 * SCRIPT_JOBS + 50
    add(queue, jobs + 3)
    plan = OurWorker(queue.handle, runner=sizes_into([]), chunk_size=1_000).plan
    with SlotQueue(plan, plan.queues[0], 0, SlotStats(), Failures(), {}, None, None) as slot:
        claim = slot.work(None, SCRIPT_JOBS)
        for more in (SCRIPT_JOBS, 50):
            claim = slot.work(None, more, claim.token)
        assert queue.counts()["active"] == jobs
        slot.end()
        with script_work(client, prefix=queue.handle.keys.base) as work:
            slot.return_held()
    assert queue.counts()["active"] == 0
    assert [job.parsed()["n"] for job in queue.page("wait")] == list(range(jobs + 3))
    whole = sum(script.elements for script in work)
    assert len(work) == 3
    assert max(script.elements for script in work) < 0.6 * whole


def test_the_scripts_that_claim_a_chunk_settle_the_one_before(
    queue: BullQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    calls = Counter[str]()
    work = SlotQueue.work

    def counted(slot: SlotQueue, outcomes: Outcomes | None, *arguments: Any) -> Claim:
        claim = work(slot, outcomes, *arguments)
        calls[" and ".join(what for what, done in (("settles", outcomes), ("claims", claim.jobs)) if done)] += 1
        return claim

    monkeypatch.setattr(SlotQueue, "work", counted)
    add(queue, 12 * SCRIPT_JOBS)
    with OurWorker(queue.handle, runner=sizes_into(sizes), chunk_size=3 * SCRIPT_JOBS):
        wait_until(completed(queue, 12 * SCRIPT_JOBS), "the jobs")
    assert sizes == [3 * SCRIPT_JOBS] * 4
    # Nothing is settled before the first chunk, and nothing is claimed after the last one.
    assert (calls["claims"], calls["settles and claims"], calls["settles"]) == (3, 9, 3)


def test_the_locks_of_processed_jobs_are_extended_until_their_part_is_settled(queue: BullQueue) -> None:
    jobs = 2 * SCRIPT_JOBS + 50
    add(queue, jobs)
    loop = OurWorker(queue.handle, runner=sizes_into([]), chunk_size=jobs).loop
    with loop.queues[0] as slot:
        chunk = loop._claim(Processed(slot, []))
        processed = loop._run(chunk)
        held = [len(slot.keeper.held())]
        while (part := processed.next_part()) is not None:
            slot.work(part, 0)
            held.append(len(slot.keeper.held()))
    assert held == [jobs, SCRIPT_JOBS + 50, 50, 0]


def lose(queue: BullQueue, client: Redis, job_id: str) -> None:
    """Lets a running job wait again, as if its lock had expired and it had been rescued, but with no stall counted."""
    keys = queue.handle.keys
    client.delete(keys.lock(job_id))
    assert client.lrem(keys["active"], 1, job_id) == 1
    client.rpush(keys["wait"], job_id)


def test_a_job_that_is_claimed_again_before_its_outcome_was_rejected_stays_held(
    queue: BullQueue, client: Redis
) -> None:
    jobs = SCRIPT_JOBS + 1
    add(queue, jobs)
    loop = OurWorker(queue.handle, runner=sizes_into([]), chunk_size=jobs).loop
    with loop.queues[0] as slot:
        chunk = loop._claim(Processed(slot, []))
        last_id = chunk.jobs[-1].id
        first, last = loop._run(chunk).parts
        lose(queue, client, last_id)
        again = slot.work(first, 1)
        assert [job.id for job in again.jobs] == [last_id]
        slot.work(last, 0)
        assert {job_id: hold.token for job_id, hold in slot.keeper.held().items()} == {last_id: again.token}
    assert queue.counts()["active"] == 1


@each_dialect
def test_a_job_that_is_claimed_twice_for_a_chunk_is_in_it_once(queue: BullQueue, client: Redis) -> None:
    sizes: list[int] = []
    job_id = queue.add({"n": 0})
    lock = queue.handle.keys.lock(job_id)
    settings = {"chunk_size": 10, "min_chunk": 5, "chunk_wait_ms": FOREVER_MS, "lock_ms": FOREVER_MS}
    with OurWorker(queue.handle, runner=sizes_into(sizes), **settings) as worker:
        wait_until(lambda: client.exists(lock), "the slot to claim the job")
        lose(queue, client, job_id)
        add(queue, 4)
        wait_until(completed(queue, 5), "all jobs")
    assert (sum(sizes), worker.stats.completed, worker.stats.lost) == (5, 5, 0)


@each_dialect
def test_a_slot_that_processes_a_chunk_waits_for_no_queue(queue: BullQueue, other: BullQueue) -> None:
    """In Bull, a wait takes a job: it would stay active, without a lock, until the chunk is processed."""
    running, over = Event(), Event()

    def process(numbers: list[int]) -> None:
        running.set()
        assert over.wait(PATIENCE_S)

    handles = [queue.handle, other.handle]
    with OurWorker(handles, runner=udf(process), chunk_size=10, min_chunk=2, chunk_wait_ms=FOREVER_MS) as worker:
        wait_until(lambda: worker.waits() == 2, "the slot to wait for both queues")
        add(queue, 1)
        wait_until(lambda: queue.counts()["active"] == 1 and worker.waits() == 2, "the slot to wait for a second job")
        # The end of its wait for the other queue does not begin another wait for the first one.
        add(other, 1)
        wait_until(lambda: worker.waits() == 1, "the end of a wait")
        add(queue, 1)
        assert running.wait(PATIENCE_S)
        add(queue, 1)
        assert worker.waits() == 0
        assert queue.counts()["wait"] == 1
        over.set()
        wait_until(completed(queue, 2), "the chunk to be processed")


def test_a_udf_that_raises_is_not_called_again_with_a_job_that_may_run_once(queue: BullQueue) -> None:
    seen: list[int] = []

    def process(numbers: list[int]) -> None:
        seen.extend(numbers)
        if 3 in numbers:
            raise ValueError("three")

    queue.add_many(NewJob({"n": n}, delivery="at-most-once" if n % 2 else None) for n in range(8))
    with OurWorker(queue.handle, runner=udf(process), chunk_size=10):
        wait_until(lambda: queue.counts()["completed"] + queue.counts()["failed"] == 8, "all jobs")
    assert sorted(seen) == list(range(8))
    assert [(job.parsed()["n"], job.failed_reason) for job in queue.page("failed")] == [(3, "three")]
