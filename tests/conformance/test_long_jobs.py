"""Jobs that take long: checkpoints from which a later attempt goes on, the time that is left, and lost locks."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from redis import Redis

from spark_bull import BullQueue
from spark_bull.core.errors import JobLockLost, JobMissing, OptionError
from spark_bull.core.model.outcomes import ClaimedJob
from spark_bull.run.job.job_runner import FunctionRunner, JobFunction
from spark_bull.run.job.running_job import RunningJob
from tests.support.wait import PATIENCE_S, wait_until
from tests.support.work_bench import each_dialect
from tests.support.worker import OurWorker

HOUR_MS = 3_600_000

#: One job at a time in the main thread; several in threads; coroutines.
WAYS = ("one by one", "threads", "coroutines")
each_way = pytest.mark.parametrize("way", WAYS)


def worker(queue: BullQueue, function: JobFunction, way: str, **options: Any) -> OurWorker:
    async def coroutine(job: RunningJob) -> Any:
        return function(job)

    if way == "coroutines":
        return OurWorker(queue.handle, coroutine, **options)
    return OurWorker(queue.handle, function, concurrency=1 if way == "one by one" else 2, **options)


def claimed(queue: BullQueue, progress: str | None = None, *, token: str = "ours") -> RunningJob:
    """A job whose lock is held with the token "ours"."""
    job_id = queue.add({})
    queue.handle.connection.call("SET", queue.handle.keys.lock(job_id), "ours")
    return RunningJob(ClaimedJob(job_id, data="{}", progress=progress), queue.handle, token)


def stored(queue: BullQueue, job_id: str) -> Any:
    job = queue.job(job_id)
    return job.parsed("progress")


@pytest.mark.parametrize(
    ("queue", "way"),
    [("bull-1", "threads"), ("bull", "coroutines"), *(("bullmq", way) for way in WAYS)],
    indirect=["queue"],
)
def test_a_retry_goes_on_from_the_last_checkpoint(queue: BullQueue, way: str) -> None:
    resumed: list[Any] = []

    def processor(job: RunningJob) -> str:
        resumed.append(job.resumed)
        for row in range((job.resumed or {"row": 0})["row"], 4):
            job.checkpoint({"row": row + 1})
            job.update_progress(25 * (row + 1))
            if row == 1:
                raise RuntimeError("the second row fails")
        return f"{job.progress} % after {job.attempts_made} failed attempts"

    job_id = queue.add({}, attempts=2)
    with worker(queue, processor, way):
        wait_until(lambda: queue.counts()["completed"] == 1, "the second attempt")
    assert resumed == [None, {"row": 2}]
    assert stored(queue, job_id) == {"progress": 100, "checkpoint": {"row": 4}}
    assert [job.returnvalue for job in queue.page("completed")] == ["100 % after 1 failed attempts"]


@each_dialect
def test_an_attempt_after_the_death_of_its_worker_goes_on_from_the_checkpoint(queue: BullQueue, client: Redis) -> None:
    resumed: list[Any] = []
    died, over = threading.Event(), threading.Event()

    def processor(job: RunningJob) -> None:
        resumed.append(job.resumed)
        if job.resumed is None:
            job.checkpoint(7)
            died.set()
            over.wait(PATIENCE_S)

    job_id = queue.add({})
    keys = queue.handle.keys
    with worker(queue, processor, "threads", lock_ms=HOUR_MS):
        assert died.wait(PATIENCE_S)
        # As a rescuer does once the lock has expired.
        client.delete(keys.lock(job_id))
        client.lmove(keys["active"], keys["wait"], "RIGHT", "RIGHT")
        with worker(queue, processor, "one by one", lock_ms=HOUR_MS):
            wait_until(lambda: queue.counts()["completed"] == 1, "the second attempt")
        over.set()
    assert resumed == [None, 7]


@each_dialect
def test_progress_is_stored_as_by_node_and_a_checkpoint_beside_it(queue: BullQueue) -> None:
    job = claimed(queue)
    assert job.progress is None
    for progress in (12.5, "half", [1], None, 0):
        job.update_progress(progress)
        assert stored(queue, job.id) == job.progress == progress, "as Node stores it"
    job.checkpoint([1, "a", None])
    assert stored(queue, job.id) == {"progress": 0, "checkpoint": [1, "a", None]}
    job.update_progress({"percent": 50})
    assert stored(queue, job.id) == {"progress": {"percent": 50}, "checkpoint": [1, "a", None]}
    job.checkpoint("b")
    assert stored(queue, job.id) == {"progress": {"percent": 50}, "checkpoint": "b"}
    assert (job.progress, job.resumed) == ({"percent": 50}, None)
    if queue.protocol == "bullmq":
        with queue.events(start="0", timeout_s=0) as events:
            told = [event.data for event in events if event.event == "progress"]
        assert told[-1] == {"progress": {"percent": 50}, "checkpoint": "b"}
    job.checkpoint(None)
    assert stored(queue, job.id) == {"percent": 50}


def test_what_is_read_from_an_earlier_attempt(queue: BullQueue) -> None:
    for progress, resumed, plain in [
        (None, None, None),
        ("0", None, 0),
        ('{"percent":50}', None, {"percent": 50}),
        ("not JSON", None, "not JSON"),
        ('{"progress":5,"checkpoint":{"row":1}}', {"row": 1}, 5),
        ('{"checkpoint":"a"}', "a", None),
        ('{"checkpoint":null}', None, None),
    ]:
        job = claimed(queue, progress)
        assert (job.resumed, job.progress) == (resumed, plain), progress
    # The checkpoint of an earlier attempt stays until there is another one.
    job = claimed(queue, '{"progress":5,"checkpoint":{"row":1}}')
    job.update_progress(6)
    assert stored(queue, job.id) == {"progress": 6, "checkpoint": {"row": 1}}
    job.checkpoint({"row": 2})
    assert stored(queue, job.id) == {"progress": 6, "checkpoint": {"row": 2}}
    assert job.resumed == {"row": 1}


@each_dialect
def test_an_attempt_without_the_lock_cannot_replace_a_checkpoint_that_it_has_not_seen(
    queue: BullQueue, client: Redis
) -> None:
    stale = claimed(queue, token="stale")
    lock = queue.handle.keys.lock(stale.id)
    client.set(lock, "newer")
    stale.update_progress(5)
    assert stored(queue, stale.id) == 5, "without a checkpoint, progress needs no lock, as in Node"
    newer = RunningJob(ClaimedJob(stale.id, data="{}", progress="5"), queue.handle, token="newer")
    newer.checkpoint({"row": 1})
    calls = (lambda: stale.update_progress(6), lambda: stale.checkpoint(2), lambda: stale.checkpoint(None))
    for is_free in (False, True):
        if is_free:
            client.delete(lock)
        for call in calls:
            with pytest.raises(JobLockLost, match=f"job {stale.id} in queue q") as caught:
                call()
            assert (caught.value.job_id, caught.value.queue) == (stale.id, "q")
    assert stored(queue, stale.id) == {"progress": 5, "checkpoint": {"row": 1}}


def test_an_attempt_that_ended_in_a_slot_cannot_replace_a_checkpoint_of_the_next_one_there(
    queue: BullQueue, client: Redis
) -> None:
    ended = claimed(queue, token="of the slot")
    client.set(queue.handle.keys.lock(ended.id), "of the slot")
    ended.lose_lock()
    ended.update_progress(5)
    RunningJob(ClaimedJob(ended.id, data="{}", progress="5"), queue.handle, token="of the slot").checkpoint(1)
    with pytest.raises(JobLockLost):
        ended.update_progress(6)
    assert stored(queue, ended.id) == {"progress": 5, "checkpoint": 1}


def test_progress_that_only_looks_like_a_checkpoint_needs_no_lock(queue: BullQueue, client: Redis) -> None:
    texts = ['{"checkpoint":null}', '{"a":{"checkpoint":1}}', '["checkpoint"]', '"checkpoint"', 'not "checkpoint"']
    for progress in texts:
        job = claimed(queue, progress, token="stale")
        client.hset(queue.handle.keys.job(job.id), "progress", progress)
        job.update_progress(9)
        assert stored(queue, job.id) == 9, progress


def test_a_checkpoint_of_a_removed_job_or_one_that_json_cannot_hold_is_an_error(queue: BullQueue) -> None:
    job = claimed(queue)
    with pytest.raises(OptionError, match="checkpoint"):
        job.checkpoint({1, 2})
    queue.handle.connection.call("DEL", queue.handle.keys.lock(job.id))
    queue.remove(job.id)
    with pytest.raises(JobMissing):
        job.checkpoint(1)


@each_way
@pytest.mark.parametrize("queue", ["bull"], indirect=True)
def test_a_job_knows_how_much_of_its_timeout_remains(queue: BullQueue, way: str) -> None:
    seen: dict[str, Any] = {}

    def processor(job: RunningJob) -> None:
        first = job.remaining_ms
        time.sleep(0.002)
        seen[job.id] = (first, job.remaining_ms)

    own = queue.add({}, opts={"timeout": HOUR_MS})
    default = queue.add({})
    with worker(queue, processor, way, timeout_ms=2 * HOUR_MS):
        wait_until(lambda: queue.counts()["completed"] == 2, "both jobs")
    assert HOUR_MS >= seen[own][0] > seen[own][1] > 0
    assert 2 * HOUR_MS >= seen[default][0] > seen[default][1] > HOUR_MS


@each_way
def test_progress_extends_the_timeout_where_asked_for(queue: BullQueue, way: str) -> None:
    """The first job reports until twice its timeout has passed, then it reports nothing more."""
    timeout_ms, begun, reported = 3_000, list[float](), list[float]()

    def step(job: RunningJob) -> None:
        begun.append(time.monotonic())
        began = begun[0]
        is_busy = time.monotonic() - began < 2 * timeout_ms / 1000
        if is_busy and (job.remaining_ms or 0) < timeout_ms - 50:
            job.update_progress(len(reported))
            reported.append(time.monotonic() - began)

    def function(job: RunningJob) -> None:
        while True:
            step(job)
            time.sleep(0.005)

    async def coroutine(job: RunningJob) -> None:
        while True:
            step(job)
            await asyncio.sleep(0.005)

    queue.add({})
    processor = coroutine if way == "coroutines" else function
    one = OurWorker(
        queue.handle,
        concurrency=1 if way == "one by one" else 2,
        runner=FunctionRunner(processor, timeout_ms, progress_extends=True),
    )
    one.run_here(lambda: wait_until(lambda: queue.counts()["failed"] == 1, "the timeout"))
    (job,) = queue.page("failed")
    assert job.failed_reason == "expected the job to take 3,000 ms at most (its timeout), it took longer"
    assert reported[-1] > timeout_ms / 1000
    assert job.parsed("progress") == len(reported) - 1


def test_the_time_that_is_left_ends_at_0_and_progress_does_not_extend_it(
    queue: BullQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 0.0
    monkeypatch.setattr("spark_bull.run.job.running_job.monotonic_s", lambda: now_s)
    job = claimed(queue)
    job.begin(0)
    assert job.remaining_ms is None
    job.begin(HOUR_MS)
    now_s = 1.0
    job.update_progress(1)
    assert job.remaining_ms == HOUR_MS - 1_000
    job.begin(HOUR_MS, extends=True)
    now_s = 2.0
    assert job.remaining_ms == HOUR_MS - 1_000
    job.checkpoint(1)
    assert job.remaining_ms == HOUR_MS
    now_s += HOUR_MS
    assert job.remaining_ms == 0


@each_way
def test_a_job_sees_that_its_lock_is_lost_and_ends(queue: BullQueue, client: Redis, way: str) -> None:
    seen: list[bool] = []

    def processor(job: RunningJob) -> None:
        seen.append(job.lock_lost)
        client.delete(queue.handle.keys.lock(job.id))
        wait_until(lambda: job.lock_lost, "the loss to be seen")
        seen.append(job.lock_lost)
        with pytest.raises(JobLockLost):
            job.checkpoint(1)

    queue.add({})
    with worker(queue, processor, way, lock_ms=6_000) as ours:
        wait_until(lambda: len(seen) == 2, "the job to see the loss")
    assert seen == [False, True]
    assert ours.stats.completed == 0


def test_a_function_that_runs_on_after_it_was_cancelled_stores_no_checkpoint(queue: BullQueue, client: Redis) -> None:
    tokens: list[Any] = []
    errors: list[BaseException] = []
    started, locked_again = threading.Event(), threading.Event()

    def processor(job: RunningJob) -> None:
        tokens.append(client.get(lock))
        started.set()
        while not errors:
            try:
                if locked_again.wait(0.01):
                    job.checkpoint("of the first attempt")
            except JobLockLost as error:
                errors.append(error)
            except BaseException:
                continue

    job_id = queue.add({})
    lock = queue.handle.keys.lock(job_id)
    with worker(queue, processor, "threads"):
        assert started.wait(PATIENCE_S)
        queue.cancel(job_id)
        wait_until(lambda: queue.counts()["failed"] == 1, "the job to be cancelled")
        # A later attempt in the same slot has a lock with the same token.
        client.set(lock, tokens[0])
        locked_again.set()
        wait_until(lambda: errors, "the checkpoint to be refused")
        client.delete(lock)
    assert stored(queue, job_id) is None


def test_reports_of_several_threads_of_a_job_keep_both_progress_and_checkpoint(queue: BullQueue) -> None:
    job = claimed(queue)
    with ThreadPoolExecutor(20) as threads:
        reports = [threads.submit(report, n) for n in range(1, 11) for report in (job.update_progress, job.checkpoint)]
    assert [report.result() for report in reports] == [None] * 20
    assert stored(queue, job.id) == {"progress": job.progress, "checkpoint": job._last_reported.checkpoint}
    assert job.progress in range(1, 11)
