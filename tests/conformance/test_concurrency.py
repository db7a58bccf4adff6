"""A slot processes several jobs at a time, in threads and in an event loop, and each is settled when it ends."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from redis import Redis

from spark_bull import BullQueue, NewJob
from spark_bull.core.errors import DelayedError, JobTimeout, RateLimitError, UnrecoverableError
from spark_bull.core.model.limits import WorkSettings
from spark_bull.core.model.outcomes import Outcomes
from spark_bull.core.queue.work.claim import work
from spark_bull.run.job.job_runner import JobFunction
from spark_bull.run.job.running_job import RunningJob
from tests.support.jobs import HOUR
from tests.support.traffic import script_work
from tests.support.wait import PATIENCE_S, wait_until
from tests.support.work_bench import rescue_all
from tests.support.worker import OurWorker

TOO_LONG = "expected the job to take 20 ms at most (its timeout), it took longer"

each_kind = pytest.mark.parametrize("kind", ["threads", "coroutines"])
each_combination = pytest.mark.parametrize(
    ("queue", "kind"),
    [("bull-1", "threads"), ("bull", "coroutines"), ("bullmq", "threads"), ("bullmq", "coroutines")],
    indirect=["queue"],
)


class Gate:
    """Processors that wait here until the test opens the gate for their job; knows how many run at the same time."""

    def __init__(self) -> None:
        self._opened: set[Any] = set()
        self._changed = threading.Condition()
        self.running: set[Any] = set()
        self.most = 0

    def open(self, *names: Any) -> None:
        with self._changed:
            self._opened.update(names)
            self._changed.notify_all()

    @contextmanager
    def entered(self, name: Any) -> Iterator[None]:
        with self._changed:
            self.running.add(name)
            self.most = max(self.most, len(self.running))
        yield
        with self._changed:
            self.running.discard(name)

    def pass_through(self, job: RunningJob) -> Any:
        name = job.data["n"]
        with self.entered(name), self._changed:
            assert self._changed.wait_for(lambda: name in self._opened, PATIENCE_S)
        return f"done {name}"

    async def pass_through_later(self, job: RunningJob) -> Any:
        name = job.data["n"]
        with self.entered(name):
            while name not in self._opened:
                await asyncio.sleep(0.005)
        return f"done {name}"

    def processor(self, kind: str) -> JobFunction:
        return self.pass_through if kind == "threads" else self.pass_through_later


def add(queue: BullQueue, count: int, **options: Any) -> list[str]:
    return queue.add_many([NewJob({"n": n}, **options) for n in range(count)]).ids


def ended(queue: BullQueue) -> int:
    counts = queue.counts()
    return counts["completed"] + counts["failed"]


@each_combination
def test_each_job_starts_when_it_arrives_is_settled_when_it_ends_and_its_place_is_filled(
    queue: BullQueue, kind: str
) -> None:
    gate = Gate()
    ids = []
    with OurWorker(queue.handle, gate.processor(kind), concurrency=3, chunk_size=100) as worker:
        for n in range(6):
            ids.append(queue.add({"n": n}))
            wait_until(lambda n=n: len(gate.running) == min(n + 1, 3), "the job to start beside the others")
        gate.open(1)
        wait_until(lambda: queue.counts()["completed"] == 1, "the job to be settled while the others run")
        wait_until(lambda: gate.running == {0, 2, 3}, "the place to be filled")
        assert queue.counts()["active"] == 3
        gate.open(*range(6))
        wait_until(lambda: queue.counts()["completed"] == 6, "all jobs")
    assert gate.most == 3
    assert (worker.stats.claimed, worker.stats.completed) == (6, 6)
    assert {job.id: job.returnvalue for job in queue.page("completed")} == {
        job_id: f"done {n}" for n, job_id in enumerate(ids)
    }


@each_kind
def test_no_script_settles_more_jobs_than_a_chunk_when_many_end_at_the_same_time(
    queue: BullQueue, kind: str, client: Redis, prefix: str
) -> None:
    gate = Gate()
    add(queue, 220)
    claim = work(queue.handle, WorkSettings("other"), None, 20)
    chunk = Outcomes(claim.token)
    for job in claim.jobs:
        chunk.complete(job.id, "1")
    with script_work(client, prefix=prefix) as settled:
        work(queue.handle, WorkSettings("other"), chunk, 0)
    with OurWorker(queue.handle, gate.processor(kind), concurrency=200, chunk_size=20):
        wait_until(lambda: len(gate.running) == 200, "all jobs to run")
        with script_work(client, prefix=prefix) as scripts:
            gate.open(*range(220))
            wait_until(lambda: queue.counts()["completed"] == 220, "all jobs")
    assert max(script.commands for script in scripts) < 2 * settled[0].commands


@each_kind
def test_what_a_processor_raises_is_the_outcome_of_its_own_job(queue: BullQueue, kind: str) -> None:
    def processor(job: RunningJob) -> Any:
        if job.data["n"] == 0:
            raise UnrecoverableError("no")
        if job.data["n"] == 1:
            raise DelayedError(HOUR)
        if job.data["n"] == 2 and job.attempts_made == 0:
            raise SystemExit(3)
        if job.data["n"] == 3 and job.attempts_made == 0:
            raise KeyboardInterrupt
        return job.data["n"]

    async def coroutine(job: RunningJob) -> Any:
        return processor(job)

    add(queue, 5, attempts=2)
    with OurWorker(queue.handle, processor if kind == "threads" else coroutine, concurrency=5):
        wait_until(lambda: (queue.counts()["completed"], queue.counts()["failed"]) == (3, 1), "the outcomes")
    assert queue.counts().items() >= {"delayed": 1, "active": 0, "wait": 0}.items()
    assert [job.failed_reason for job in queue.page("failed")] == ["no"]
    assert sorted(job.returnvalue for job in queue.page("completed")) == [2, 3, 4]


@each_kind
def test_a_rate_limit_stops_further_jobs_and_lets_running_ones_end(queue: BullQueue, kind: str) -> None:
    gate = Gate()
    limited = threading.Event()

    def processor(job: RunningJob) -> Any:
        if job.data["n"] == 0 and not limited.is_set():
            limited.set()
            raise RateLimitError(HOUR)
        return gate.pass_through(job)

    async def coroutine(job: RunningJob) -> Any:
        return await asyncio.to_thread(processor, job)

    add(queue, 2)
    with OurWorker(queue.handle, processor if kind == "threads" else coroutine, concurrency=2):
        wait_until(lambda: queue.counts()["wait"] == 1, "the job to be given back")
        queue.add({"n": 2})
        gate.open(0, 1, 2)
        wait_until(lambda: queue.counts()["completed"] == 1, "the other job")
    assert queue.counts()["wait"] == 2


def test_a_coroutine_that_exceeds_its_timeout_is_cancelled_and_completes_if_it_ignores_that(queue: BullQueue) -> None:
    cleaned: list[str] = []

    async def processor(job: RunningJob) -> Any:
        try:
            await asyncio.sleep(PATIENCE_S)
        except asyncio.CancelledError:
            cleaned.append(job.id)
            if job.data["n"] == 0:
                raise
        return "done anyway"

    ids = add(queue, 2)
    with OurWorker(queue.handle, processor, timeout_ms=20):
        wait_until(lambda: ended(queue) == 2, "the timeouts")
    assert cleaned == ids
    (failed,), (done,) = queue.page("failed"), queue.page("completed")
    assert failed.failed_reason == TOO_LONG
    assert done.returnvalue == "done anyway"


@pytest.fixture
def let_time_pass(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Lets functions in threads exceed their timeouts; without a call, their clock stands still."""
    times_s = [time.monotonic()]
    monkeypatch.setattr("spark_bull.run.job.job_threads.monotonic_s", lambda: times_s[-1])
    return lambda: times_s.append(times_s[-1] + 60)


def test_a_function_that_exceeds_its_timeout_is_interrupted(
    queue: BullQueue, let_time_pass: Callable[[], None]
) -> None:
    started, interrupted = threading.Event(), threading.Event()

    def processor(job: RunningJob) -> None:
        try:
            started.set()
            while True:
                time.sleep(0.001)
        except BaseException:
            interrupted.set()
            raise

    add(queue, 1)
    with OurWorker(queue.handle, processor, concurrency=2, timeout_ms=20):
        assert started.wait(PATIENCE_S)
        let_time_pass()
        wait_until(lambda: queue.counts()["failed"] == 1, "the timeout")
        assert interrupted.wait(PATIENCE_S)
    assert [job.failed_reason for job in queue.page("failed")] == [TOO_LONG]


def test_a_function_of_the_main_thread_that_swallows_its_timeout_is_interrupted_again(queue: BullQueue) -> None:
    interrupted: list[Exception] = []

    def processor(job: RunningJob) -> int:
        while len(interrupted) < 2:
            try:
                time.sleep(PATIENCE_S)
            except Exception as error:
                interrupted.append(error)
        raise interrupted[-1]

    add(queue, 1)
    worker = OurWorker(queue.handle, processor, timeout_ms=20)
    worker.run_here(lambda: wait_until(lambda: queue.counts()["failed"] == 1, "the timeout"))
    assert [job.failed_reason for job in queue.page("failed")] == [TOO_LONG]


def test_functions_that_block_beyond_their_timeout_hold_no_place_until_there_are_too_many(
    queue: BullQueue, let_time_pass: Callable[[], None]
) -> None:
    blocked = threading.Event()
    started: list[int] = []

    def processor(job: RunningJob) -> None:
        try:
            started.append(job.data["n"])
            blocked.wait(PATIENCE_S)
        except JobTimeout:
            # It may be interrupted before it has blocked, and again afterwards.
            while not blocked.is_set():
                with suppress(JobTimeout):
                    blocked.wait(PATIENCE_S)

    add(queue, 6)
    with OurWorker(queue.handle, processor, concurrency=2, timeout_ms=20):
        for running in (2, 4):
            wait_until(lambda running=running: len(started) == running, "jobs to have started")
            let_time_pass()
        wait_until(lambda: queue.counts()["failed"] == 4, "four jobs to exceed their timeout")
        assert len(started) == 4
        blocked.set()
        wait_until(lambda: ended(queue) == 6, "the others to run once the threads have ended")
    assert sorted(started) == list(range(6))


def add_stalled(queue: BullQueue, *names: int) -> None:
    """Jobs whose first worker has died."""
    ids = queue.add_many(NewJob({"n": n}) for n in names).ids
    assert work(queue.handle, WorkSettings("dead"), None, len(ids)).claimed == len(ids)
    rescue_all(queue.handle, ids)


@each_combination
def test_a_job_that_stalled_before_runs_alone(queue: BullQueue, kind: str) -> None:
    gate = Gate()
    add_stalled(queue, 1, 2)
    queue.add_many(NewJob({"n": n}) for n in (3, 4))
    with OurWorker(queue.handle, gate.processor(kind), concurrency=4):
        wait_until(lambda: gate.running == {3, 4}, "the other jobs to run together")
        gate.open(3, 4)
        wait_until(lambda: len(gate.running) == 1 and gate.running <= {1, 2}, "one of the two to run alone")
        (first,) = gate.running
        gate.open(first)
        wait_until(lambda: gate.running == {3 - first}, "the other one to run alone")
        gate.open(1, 2)
        wait_until(lambda: queue.counts()["completed"] == 4, "all jobs")


@each_kind
def test_the_result_of_a_run_that_lost_its_lock_is_dropped_when_the_slot_claims_the_job_again(
    queue: BullQueue, kind: str
) -> None:
    runs: list[int] = []
    gates = [Gate(), Gate()]

    def processor(job: RunningJob) -> Any:
        run = len(runs)
        runs.append(run)
        return f"run {run}, {gates[run].pass_through(job)}"

    async def coroutine(job: RunningJob) -> Any:
        return await asyncio.to_thread(processor, job)

    job_id = queue.add({"n": 1})
    with OurWorker(queue.handle, processor if kind == "threads" else coroutine, concurrency=2, lock_ms=HOUR):
        wait_until(lambda: runs == [0], "the first run")
        rescue_all(queue.handle, [job_id])
        wait_until(lambda: runs == [0, 1], "the job to be claimed again")
        gates[0].open(1)
        wait_until(lambda: not gates[0].running, "the first run to end")
        assert (queue.counts()["active"], queue.counts()["completed"]) == (1, 0)
        gates[1].open(1)
        wait_until(lambda: queue.counts()["completed"] == 1, "the second run")
    assert [job.returnvalue for job in queue.page("completed")] == ["run 1, done 1"]
    assert runs == [0, 1]


@each_combination
def test_a_stop_lets_running_jobs_end_and_gives_back_those_that_have_not_started(queue: BullQueue, kind: str) -> None:
    gate = Gate()
    add_stalled(queue, 1)
    queue.add({"n": 2})
    with OurWorker(queue.handle, gate.processor(kind), concurrency=2) as worker:
        wait_until(lambda: gate.running == {2} and queue.counts()["active"] == 2, "one to run, the other to be held")
        worker.control.request("stop")
        gate.open(1, 2)
    assert (worker.stats.completed, worker.stats.returned) == (1, 1)
    assert queue.counts()["wait"] == 1


@each_combination
def test_a_paused_worker_claims_nothing_and_goes_on_when_it_is_resumed(queue: BullQueue, kind: str) -> None:
    gate = Gate()
    gate.open(*range(10))
    with OurWorker(queue.handle, gate.processor(kind), concurrency=2) as worker:
        queue.add({"n": 0})
        wait_until(lambda: queue.counts()["completed"] == 1, "a job")
        worker.control.pause()
        worker.control.unblock()
        wait_until(lambda: waits_paused(worker, queue), "the slot to wait for its resumption")
        add(queue, 3)
        with OurWorker(queue.handle, lambda job: "other") as other:
            wait_until(lambda: queue.counts()["completed"] == 4, "another worker to process the jobs")
        assert other.stats.completed == 3
        add(queue, 2)
        worker.control.resume()
        wait_until(lambda: queue.counts()["completed"] == 6, "the jobs after the resumption")


def waits_paused(worker: OurWorker, queue: BullQueue) -> bool:
    clients = queue.handle.connection.clients()
    return any(int(one["id"]) in worker.loop.clients and one["cmd"] == "blpop" for one in clients)


def test_a_chunk_is_finished_before_a_pause_takes_effect(queue: BullQueue) -> None:
    worker = OurWorker(queue.handle, lambda job: worker.control.pause(), chunk_size=3)
    add(queue, 3)
    with worker:
        wait_until(lambda: waits_paused(worker, queue), "the slot to wait for its resumption")
        assert queue.counts()["completed"] == 3
        worker.control.resume()
    assert queue.counts()["active"] == 0


class Caller:
    async def __call__(self, job: RunningJob) -> str:
        return f"object {job.id}"

    async def method(self, job: RunningJob, prefix: str = "method") -> str:
        await asyncio.sleep(0)
        return f"{prefix} {job.id}"


def test_jobs_go_to_the_processor_of_their_name_and_whatever_returns_a_coroutine_is_awaited(queue: BullQueue) -> None:
    one = Caller()
    ways = {
        "object": one,
        "method": one.method,
        "partial": functools.partial(one.method, prefix="partial"),
        "plain": lambda job: "plain",
        "*": lambda job: "other",
    }
    queue.add_many([NewJob({}, name=name) for name in ("object", "method", "partial", "plain", "any")])
    with OurWorker(queue.handle, ways, concurrency=2):
        wait_until(lambda: queue.counts()["completed"] == 5, "the jobs")
    returned = {job.returnvalue for job in queue.page("completed")}
    assert returned == {"object 1", "method 2", "partial 3", "plain", "other"}


@pytest.mark.parametrize("concurrency", [1, 4])
def test_jobs_without_a_processor_of_their_name_fail(queue: BullQueue, concurrency: int) -> None:
    queue.add_many([NewJob({}, name=name, attempts=2) for name in ("report", "send")])
    with OurWorker(queue.handle, {"report": lambda job: "reported"}, concurrency=concurrency):
        wait_until(lambda: ended(queue) == 2, "both jobs")
    assert [job.returnvalue for job in queue.page("completed")] == ["reported"]
    (job,) = queue.page("failed")
    assert job.attempts_made == 2
    assert job.failed_reason == (
        "expected a processor for jobs named 'send', this worker has: report; add one, or '*' for all other names"
    )


@pytest.fixture
def queues(request: pytest.FixtureRequest, open_queue: Callable[..., BullQueue]) -> list[BullQueue]:
    return [open_queue(name, request.param) for name in ("urgent", "mail")]


each_pair = pytest.mark.parametrize("queues", ["bull", "bullmq"], indirect=True)


@pytest.mark.parametrize(("queues", "concurrency"), [("bull-1", 1), ("bull", 2), ("bullmq", 2)], indirect=["queues"])
def test_jobs_of_the_first_queue_are_claimed_before_those_of_the_others(
    queues: list[BullQueue], concurrency: int
) -> None:
    urgent, mail = queues
    gate = Gate()
    order: list[int] = []

    def processor(job: RunningJob) -> None:
        order.append(job.data["n"])
        gate.pass_through(job)

    add(mail, 4)
    with OurWorker([queue.handle for queue in queues], processor, concurrency=concurrency) as worker:
        wait_until(lambda: len(gate.running) == concurrency, "the places to be full")
        urgent.add_many(NewJob({"n": n}) for n in (10, 11, 12))
        wait_until(lambda: not worker.loop.queues[0].wait.is_on, "the slot to have the signal")
        gate.open(*range(4), 10, 11, 12)
        wait_until(lambda: ended(urgent) == 3 and ended(mail) == 4, "all jobs")
    assert {order.index(n) for n in (10, 11, 12)} == {concurrency, concurrency + 1, concurrency + 2}


@pytest.mark.parametrize(("queues", "concurrency"), [("bull-1", 3), ("bull", 1), ("bullmq", 3)], indirect=["queues"])
def test_a_slot_waits_for_all_its_queues_at_once(queues: list[BullQueue], concurrency: int) -> None:
    with OurWorker([queue.handle for queue in queues], lambda job: job.queue, concurrency=concurrency) as worker:
        for round_ in range(2):
            for queue in reversed(queues):
                wait_until(lambda: worker.waits() == 2, "the slot to wait for both queues")
                queue.add({"n": round_})
                wait_until(lambda queue=queue, n=round_: ended(queue) == n + 1, "the job")


@each_pair
def test_a_busy_slot_leaves_the_signals_of_its_other_queues_to_others(queues: list[BullQueue]) -> None:
    urgent, mail = queues
    gate = Gate()
    with OurWorker([urgent.handle, mail.handle], gate.pass_through) as worker:
        wait_until(lambda: worker.waits() == 2, "the slot to wait for both queues")
        urgent.add({"n": "busy"})
        wait_until(lambda: gate.running == {"busy"}, "the job")
        with OurWorker(mail.handle, lambda job: "other"):
            mail.add({"n": "mail"})
            wait_until(lambda: ended(mail) == 1, "the other worker to get the job")
        assert mail.counts()["active"] == 0
        gate.open("busy")
        wait_until(lambda: ended(urgent) == 1, "the first job")


@each_pair
def test_waits_that_lost_their_connection_can_still_be_ended(queues: list[BullQueue], client: Redis) -> None:
    """Otherwise every job of a slot with several queues starts when the waits for the other queues time out."""
    _, mail = queues
    with OurWorker([queue.handle for queue in queues], lambda job: job.data["n"]) as worker:
        wait_until(lambda: worker.waits() == 2, "the slot to wait for both queues")
        before = worker.loop.clients
        for client_id in before:
            client.client_kill_filter(_id=str(client_id))
        wait_until(lambda: worker.waits() == 2, "the slot to wait again")
        assert not set(before) & set(worker.loop.clients)
        for n in range(2):
            mail.add({"n": n})
            wait_until(lambda n=n: ended(mail) == n + 1, "the job")
            wait_until(lambda: worker.waits() == 2, "the slot to wait for both queues")


def test_a_wait_that_fails_ends_its_slot_with_the_error(queue: BullQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = OurWorker(queue.handle, lambda job: "done", concurrency=2)
    monkeypatch.setattr(worker.loop.queues[0].wait._signal, "wait", lambda timeout_s: 1 / 0)
    worker.start()
    wait_until(lambda: worker.error is not None, "the slot to end")
    assert isinstance(worker.error, ZeroDivisionError)
