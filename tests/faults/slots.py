"""Slots in processes of their own, for tests that end these processes."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from multiprocessing.synchronize import Event
from typing import Any

from redis import Redis

from spark_bull import BullQueue, RunningJob
from spark_bull.core.model.limits import WorkSettings
from spark_bull.run.job.job_runner import FunctionRunner, JobFunction, Result, Runner
from spark_bull.run.slot.concurrent_loop import ConcurrentLoop
from spark_bull.run.slot.slot import loop_of
from spark_bull.run.slot.slot_loop import Event as LoopEvent
from spark_bull.run.slot.slot_plan import SlotPlan, SlotQueuePlan
from spark_bull.run.slot.slot_state import Setup
from tests.support.forked_programs import ForkedProcess
from tests.support.wait import wait_until

#: The payload of the job, with the kinds poison and chunk, that sends SIGTERM to its process.
POISON = {"n": "poison"}
#: How processes that jobs of the kind leaving fork leave their processor, by `n`, and their status.
LEAVING: Sequence[tuple[BaseException | None, int]] = (
    (None, 0),
    (SystemExit(), 0),
    (SystemExit(3), 3),
    (ValueError("of a fork"), 1),
)


class ChunkRunner(Runner):
    """Calls a function for all jobs of a chunk, then yields their results, as the runner of a UDF does."""

    one_by_one = False
    may_end_process = True

    def __init__(self, function: Callable[[RunningJob], None]) -> None:
        self._function = function

    def __call__(self, jobs: Sequence[RunningJob], lost: Collection[str]) -> Iterator[Sequence[Result]]:
        for job in jobs:
            job.begin(0)
        for job in jobs:
            self._function(job)
        yield [Result(job, None, None) for job in jobs]

    def interrupt(self, job: RunningJob) -> None:
        """No job of these tests is cancelled."""


def start_slot(url: str, prefix: str, dialect: str, concurrency: int, kind: str = "endless") -> ForkedProcess:
    """Starts a slot of a worker for the queue `q`, whose jobs report progress 1 when they start.

    endless: jobs do not end by themselves. brief: they end at once, and count how often they have started. state: as
    endless, with a state that is appended to the list `<prefix>:closed` when it is closed. poison: as brief, but for
    the payload POISON; chunk: the same with one call for the whole chunk, as of a UDF. forking: each job forks a
    process, ends it with SIGTERM, and returns its status. leaving: each job counts its start, forks a process that
    leaves the processor as LEAVING says for its payload, and returns its status. unread: as brief, in a slot whose
    loop is too late to take the result of any job, and counts results in `<prefix>:ended`.
    """
    return ForkedProcess(_run_slot, url, prefix, dialect, concurrency, kind)


def starts(client: Redis, prefix: str) -> dict[str, int]:
    found: dict[Any, Any] = client.hgetall(f"{prefix}:starts")
    return {job_id.decode(): int(times) for job_id, times in found.items()}


def wait_until_started(queue: BullQueue, jobs: int, concurrency: int) -> None:
    """Waits until a slot has claimed all jobs, and has started as many as it may.

    Jobs in a reply that the slot has not read yet are rescued when their locks expire.
    """

    def started() -> bool:
        active = queue.page("active")
        return len(active) == jobs and sum(job.parsed("progress") == 1 for job in active) == concurrency

    wait_until(started, "the slot to claim all jobs, and to start as many as it may")


def _outlast_parent(has_begun: Event) -> None:
    has_begun.set()
    parent = multiprocessing.parent_process()
    parent.join()


def _take_no_results(redis: Redis, key: str) -> None:
    """Lets the loop of this process stand still at its first event; counts the results that are posted to it."""
    post = ConcurrentLoop._post

    def counting(loop: ConcurrentLoop, event: LoopEvent) -> None:
        post(loop, event)
        redis.incr(key)

    ConcurrentLoop._post = counting
    ConcurrentLoop._take = lambda *_: threading.Event().wait()


def _run_slot(url: str, prefix: str, dialect: str, concurrency: int, kind: str) -> None:
    # Tests that nohup runs ignore SIGHUP, and so would this process.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    handle = BullQueue("q", url=url, prefix=prefix, protocol=dialect).handle
    settings = WorkSettings("slot", lock_ms=3_600_000, control=handle.keys.control("slot"))
    redis = Redis.from_url(url)
    if kind == "unread":
        _take_no_results(redis, f"{prefix}:ended")

    def endless(job: RunningJob) -> None:
        job.update_progress(1)
        time.sleep(3_600)

    async def endless_in_loop(job: RunningJob) -> None:
        job.update_progress(1)
        await asyncio.sleep(3_600)

    def brief(job: RunningJob) -> None:
        redis.hincrby(f"{prefix}:starts", job.id)

    def poison(job: RunningJob) -> None:
        brief(job)
        if job.data == POISON:
            os.kill(os.getpid(), signal.SIGTERM)
            endless(job)

    def forking(job: RunningJob) -> int | None:
        context = multiprocessing.get_context("fork")
        has_begun = context.Event()
        child = context.Process(target=_outlast_parent, args=[has_begun])
        child.start()
        has_begun.wait()
        child.terminate()
        child.join()
        return child.exitcode

    def state() -> Iterator[str]:
        yield "open"
        redis.rpush(f"{prefix}:closed", "plain")

    def leaving(job: RunningJob) -> int:
        brief(job)
        forked = os.fork()
        if forked:
            return os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1])
        error, _ = LEAVING[job.data["n"]]
        if error is not None:
            raise error
        return -1

    async def leaving_in_loop(job: RunningJob) -> int:
        return leaving(job)

    @asynccontextmanager
    async def state_in_loop() -> AsyncIterator[str]:
        yield "open"
        redis.rpush(f"{prefix}:closed", "asynchronous")

    processors: dict[str, tuple[JobFunction, Setup | None]] = {
        "endless": (endless, None),
        "brief": (brief, None),
        "poison": (poison, None),
        "chunk": (poison, None),
        "forking": (forking, None),
        "leaving": (leaving, None),
        "leaving, coroutine": (leaving_in_loop, None),
        "unread": (brief, None),
        "state": (endless, state),
        "state, coroutine": (endless_in_loop, state_in_loop),
    }
    processor, setup = processors[kind]
    queues = (SlotQueuePlan(handle, settings),)
    runner: Runner = ChunkRunner(processor) if kind == "chunk" else FunctionRunner(processor)
    plan = SlotPlan(queues, "slot", runner, chunk_size=200, concurrency=concurrency, setup=setup)
    loop_of(plan, 0).run()
