"""An active job is cancelled: its processor is interrupted, and it fails without a further attempt."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from redis import Redis

from spark_bull import BullQueue, JobCancelled, NewJob
from spark_bull.core.errors import DelayedError, JobMissing, OptionError, WrongState
from spark_bull.core.model.limits import WorkSettings
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.manage.cancel import CancelRequest, cancel_requests
from spark_bull.core.queue.work.claim import work
from spark_bull.run.job.running_job import RunningJob
from spark_bull.run.slot import chunk_loop, termination
from spark_bull.spark.work.udf_runner import UdfRunner
from tests.support.node import NodePeer, Peer, each_peer_of
from tests.support.wait import PATIENCE_S, wait_until
from tests.support.work_bench import each_dialect, rescue_all
from tests.support.worker import OurWorker

StartNode = Callable[..., NodePeer]

each_combination = pytest.mark.parametrize(
    ("queue", "kind"),
    [("bull-1", "thread"), ("bull", "chunk"), *(("bullmq", kind) for kind in ("thread", "coroutine", "chunk"))],
    indirect=["queue"],
)


class Blocked:
    """Processors that end only when they are interrupted, for jobs with `block`; others return at once."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.raised: list[type[BaseException]] = []
        self.saw_cancelled: list[bool] = []

    def function(self, job: RunningJob) -> str:
        self.started.append(job.id)
        try:
            for _ in range(int(10 * PATIENCE_S) if job.data.get("block") else 0):
                time.sleep(0.1)
        except BaseException as error:
            self._record(job, error)
            raise
        return "done"

    async def coroutine(self, job: RunningJob) -> str:
        self.started.append(job.id)
        try:
            await asyncio.sleep(PATIENCE_S if job.data.get("block") else 0)
        except BaseException as error:
            self._record(job, error)
            raise
        return "done"

    def _record(self, job: RunningJob, error: BaseException) -> None:
        self.raised.append(type(error))
        self.saw_cancelled.append(job.cancelled)


def process(queue: BullQueue, kind: str, blocked: Blocked, meanwhile: Callable[[], object]) -> None:
    """Runs a worker of this kind until `meanwhile` has ended."""
    if kind == "chunk":
        OurWorker(queue.handle, blocked.function, chunk_size=10).run_here(meanwhile)
        return
    with OurWorker(queue.handle, blocked.function if kind == "thread" else blocked.coroutine, concurrency=2):
        meanwhile()


def wait_until_requests_are_read(queue: BullQueue) -> None:
    wait_until(lambda: not queue.handle.connection.call("EXISTS", queue.handle.keys["cancels"]), "them to be read")


def failed_reasons(queue: BullQueue) -> dict[str, str | None]:
    return {job.id: job.failed_reason for job in queue.page("failed")}


@each_combination
def test_a_job_that_is_cancelled_is_interrupted_and_fails_without_a_further_attempt(
    queue: BullQueue, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = queue.add({"block": True}, attempts=3)
    blocked = Blocked()
    requested = threading.Event()

    def read(handle: QueueHandle, job_ids: Sequence[str]) -> dict[str, CancelRequest]:
        return cancel_requests(handle, job_ids) if requested.is_set() else {}

    def cancel() -> None:
        wait_until(lambda: blocked.started, "the job to start")
        queue.cancel(job_id, "the customer has left")
        queue.cancel(job_id, "the customer has left")
        requested.set()
        wait_until(lambda: queue.counts()["failed"], "the job to fail")
        wait_until(lambda: blocked.raised, "the processor to be interrupted")
        other = queue.add({})
        wait_until(lambda: queue.counts()["completed"], f"job {other} to be processed afterwards")

    monkeypatch.setattr(termination, "cancel_requests", read)
    process(queue, kind, blocked, cancel)
    assert failed_reasons(queue) == {job_id: "cancelled: the customer has left"}
    assert blocked.started.count(job_id) == 1
    assert blocked.raised == [asyncio.CancelledError if kind == "coroutine" else JobCancelled]
    assert blocked.saw_cancelled == [True]
    assert queue.counts()["active"] == 0


@each_dialect
def test_all_jobs_that_slots_hold_are_cancelled(queue: BullQueue) -> None:
    ids = queue.add_many(NewJob({"block": True}, attempts=3) for _ in range(2)).ids
    blocked = Blocked()
    with OurWorker(queue.handle, blocked.function, concurrency=2):
        wait_until(lambda: len(blocked.started) == 2, "the jobs to start")
        # A job that another program than a slot holds.
        queue.handle.connection.call("HSET", queue.handle.keys.job("x"), "data", "{}")
        queue.handle.connection.call("SET", queue.handle.keys.lock("x"), "a worker of Node")
        queue.handle.connection.call("LPUSH", queue.handle.keys["active"], "x")
        assert queue.cancel_all("the shop is closed") == 2
        wait_until(lambda: queue.counts()["failed"] == 2, "the jobs to fail")
    assert failed_reasons(queue) == dict.fromkeys(ids, "cancelled: the shop is closed")
    assert queue.cancel_all() == 0
    with pytest.raises(OptionError, match="`reason`"):
        queue.cancel_all(7)


@each_dialect
def test_the_others_of_a_chunk_are_processed(queue: BullQueue) -> None:
    """One of them is cancelled before it starts."""
    ids = queue.add_many(NewJob({"block": n == 1}, attempts=3) for n in range(6)).ids
    blocked = Blocked()

    def cancel() -> None:
        wait_until(lambda: ids[1] in blocked.started, "the job to start")
        queue.cancel(ids[3])
        wait_until_requests_are_read(queue)
        queue.cancel(ids[1])
        wait_until(lambda: (queue.counts()["completed"], queue.counts()["failed"]) == (4, 2), "the outcomes")

    OurWorker(queue.handle, blocked.function, chunk_size=10).run_here(cancel)
    assert failed_reasons(queue) == {ids[1]: "cancelled", ids[3]: "cancelled"}
    assert ids[3] not in blocked.started


def test_a_job_that_has_not_started_fails_when_the_rest_of_its_chunk_goes_back(
    queue: BullQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunk_loop, "SETTLE_S", 0.0)
    monkeypatch.setattr(chunk_loop, "RETURN_S", 0.0)
    ids = queue.add_many(NewJob({"n": n}) for n in range(3)).ids
    cancelled = threading.Event()

    def processor(job: RunningJob) -> None:
        if job.id == ids[0]:
            assert cancelled.wait(PATIENCE_S)
            queue.pause()

    with OurWorker(queue.handle, processor, chunk_size=10):
        wait_until(lambda: queue.counts()["active"] == 3, "the chunk")
        queue.cancel(ids[2])
        wait_until_requests_are_read(queue)
        cancelled.set()
        wait_until(lambda: queue.counts()["active"] == 0, "the chunk to end")
    assert failed_reasons(queue) == {ids[2]: "cancelled"}
    assert queue.counts()["completed"] == 1


@pytest.mark.parametrize(
    ("queue", "kind"), [("bull", "coroutine"), ("bullmq", "thread"), ("bullmq", "coroutine")], indirect=["queue"]
)
def test_a_stalled_job_that_waits_to_run_alone_is_cancelled_before_it_starts(queue: BullQueue, kind: str) -> None:
    stalled = queue.add({})
    assert work(queue.handle, WorkSettings("dead"), None, 1).claimed == 1
    rescue_all(queue.handle, [stalled])
    running = queue.add({"block": True})
    blocked = Blocked()

    def cancel() -> None:
        wait_until(lambda: blocked.started, "the other job to start")
        wait_until(lambda: queue.counts()["active"] == 2, "the stalled job to be claimed")
        queue.cancel(stalled)
        wait_until(lambda: queue.counts()["failed"] == 1, "the stalled job to fail")
        queue.cancel(running)
        wait_until(lambda: queue.counts()["failed"] == 2, "the other job to fail")

    process(queue, kind, blocked, cancel)
    assert blocked.started == [running]


def sleeping_udf(kind: str, calls: list[list[int]]) -> UdfRunner:
    """A UDF that blocks for rows with a 2, and records the rows of its calls."""

    def udf(n: Any) -> Any:
        rows = [int(one) for one in n.tolist()]
        calls.append(rows)
        if 2 in rows:
            time.sleep(PATIENCE_S)
        tens = [10 * one for one in rows]
        return pd.Series(tens) if kind == "pandas" else pa.array(tens)

    return UdfRunner(udf, kind, pa.struct([("n", pa.int64())]), pa.int64())


@pytest.mark.parametrize(("queue", "kind"), [("bull", "pandas"), ("bullmq", "arrow")], indirect=["queue"])
def test_a_udf_is_interrupted_and_called_again_without_the_cancelled_job(queue: BullQueue, kind: str) -> None:
    ids = queue.add_many(NewJob({"n": n}) for n in range(1, 7)).ids
    calls: list[list[int]] = []

    def cancel() -> None:
        wait_until(lambda: calls, "the UDF to be called")
        queue.cancel(ids[1], "too long")
        wait_until(lambda: (queue.counts()["completed"], queue.counts()["failed"]) == (5, 1), "the outcomes")

    OurWorker(queue.handle, runner=sleeping_udf(kind, calls), chunk_size=10).run_here(cancel)
    assert failed_reasons(queue) == {ids[1]: "cancelled: too long"}
    assert [2 in rows for rows in calls] == [True] + [False] * (len(calls) - 1)
    assert sorted(int(job.parsed("returnvalue")) for job in queue.page("completed")) == [10, 30, 40, 50, 60]


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_function_that_checks_for_the_cancellation_ends_as_it_wants(queue: BullQueue, concurrency: int) -> None:
    """Outside the main thread, a function of a chunk is not interrupted, and a coroutine can finish its work."""
    started = threading.Event()

    def processor(job: RunningJob) -> str:
        started.set()
        wait_until(lambda: job.cancelled, "the cancellation")
        return "rolled back"

    async def coroutine(job: RunningJob) -> str:
        started.set()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(PATIENCE_S)
        return "rolled back" if job.cancelled else "never"

    job_id = queue.add({})
    with OurWorker(queue.handle, processor if concurrency == 1 else coroutine, chunk_size=10, concurrency=concurrency):
        assert started.wait(PATIENCE_S)
        queue.cancel(job_id)
        wait_until(lambda: queue.counts()["completed"], "the job to complete")
    assert [job.parsed("returnvalue") for job in queue.page("completed")] == ["rolled back"]


@pytest.mark.parametrize(
    ("kind", "interruptions", "end", "reason"),
    [
        ("chunk", 1, "done", None),
        ("chunk", 1, DelayedError(3_600_000), "cancelled"),
        ("thread", 1, DelayedError(3_600_000), "cancelled"),
        ("chunk", 2, RuntimeError("swallows the first one"), "cancelled"),
    ],
)
def test_a_job_whose_function_returns_after_its_interruption_completes_and_any_error_fails_it(
    queue: BullQueue, kind: str, interruptions: int, end: str | Exception, reason: str | None
) -> None:
    class Stubborn(Blocked):
        def function(self, job: RunningJob) -> str:
            self.started.append(job.id)
            while len(self.raised) < interruptions:
                try:
                    time.sleep(PATIENCE_S) if kind == "chunk" else time.sleep(0.1)
                except JobCancelled as error:
                    self._record(job, error)
            if isinstance(end, Exception):
                raise end
            return end

    blocked = Stubborn()
    job_id = queue.add({}, attempts=3)

    def cancel() -> None:
        wait_until(lambda: blocked.started, "the job to start")
        queue.cancel(job_id)
        wait_until(lambda: queue.counts()["completed"] + queue.counts()["failed"], "the job to end")
        wait_until(lambda: blocked.saw_cancelled == [True] * interruptions, "the function to be interrupted")

    process(queue, kind, blocked, cancel)
    job = queue.job(job_id)
    assert (job.returnvalue, job.failed_reason) == ((end, None) if reason is None else (None, reason))


@each_combination
def test_a_request_does_not_apply_to_a_later_attempt(
    queue: BullQueue, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt ends before its slot reads the request; the slot claims the second under the same token."""
    attempts: list[str] = []
    reads: list[dict[str, CancelRequest]] = []

    def read(handle: QueueHandle, job_ids: Sequence[str]) -> dict[str, CancelRequest]:
        if len(attempts) < 2:
            return {}
        reads.append(cancel_requests(handle, job_ids))
        return reads[-1]

    def function(job: RunningJob) -> None:
        attempts.append(job.id)
        if len(attempts) == 1:
            queue.cancel(job.id)
            connection = queue.handle.connection
            requested = connection.now_ms()
            wait_until(lambda: connection.now_ms() > requested + 1, "Redis' clock to advance")
            raise ValueError("the first attempt")
        wait_until(lambda: len(reads) >= 2, "two reads of requests")

    async def coroutine(job: RunningJob) -> None:
        await asyncio.to_thread(function, job)

    monkeypatch.setattr(termination, "cancel_requests", read)
    job_id = queue.add({}, attempts=2)
    concurrency = 1 if kind == "chunk" else 2
    worker = OurWorker(queue.handle, coroutine if kind == "coroutine" else function, concurrency=concurrency)
    worker.run_here(lambda: wait_until(lambda: queue.counts()["completed"], "the job to complete"))
    assert attempts == [job_id, job_id]
    assert [list(read) for read in reads[:2]] == [[job_id], [job_id]]


@each_dialect
def test_only_active_jobs_of_our_workers_are_cancelled(queue: BullQueue, client: Redis) -> None:
    for missing in ("404", "wait"):
        with pytest.raises(JobMissing, match="found none"):
            queue.cancel(missing)
    job_id = queue.add({})
    with pytest.raises(WrongState, match=rf"expected job {job_id} of queue q to be active, it is wait"):
        queue.cancel(job_id)
    assert work(queue.handle, WorkSettings("stream query"), None, 1).claimed == 1
    with pytest.raises(WrongState, match="to be held by a Spark Worker: "):
        queue.cancel(job_id)
    client.delete(queue.handle.keys.lock(job_id))
    with pytest.raises(WrongState, match="its lock has expired"):
        queue.cancel(job_id)
    with pytest.raises(OptionError, match="expected `reason` to be a text, got: 7"):
        queue.cancel(job_id, 7)
    assert not client.exists(queue.handle.keys["cancels"])


@pytest.mark.interop
@each_peer_of("bull-4.16.5", "bullmq-6.7.0")
def test_a_job_of_a_node_worker_is_refused(node: StartNode, redis_url: str, prefix: str, peer: Peer) -> None:
    worker = node(peer.alias, prefix=prefix)
    name = f"held-{prefix}"
    with BullQueue(name, url=redis_url, prefix=prefix, protocol=peer.dialect) as queue:
        job_id = queue.add({"$behaviour": "sleep:3600000"})
        worker.call("process", queue=name)
        wait_until(lambda: queue.counts()["active"], "Node to start the job")
        wait_until(lambda: queue.handle.connection.call("EXISTS", queue.handle.keys.lock(job_id)), "its lock")
        with pytest.raises(
            WrongState, match="jobs of Node workers, and of queries with mode=claim, cannot be cancelled"
        ):
            queue.cancel(job_id)


def test_the_handler_of_alarms_is_restored(queue: BullQueue) -> None:
    before = signal.getsignal(signal.SIGALRM)
    queue.add({})
    seen: list[Any] = []
    worker = OurWorker(queue.handle, lambda job: seen.append(signal.getsignal(signal.SIGALRM)), chunk_size=10)
    worker.run_here(lambda: wait_until(lambda: queue.counts()["completed"], "the job"))
    assert seen != [before]
    assert signal.getsignal(signal.SIGALRM) is before
