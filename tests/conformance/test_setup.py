"""`setup` makes the state of a slot once; its jobs have it as `job.state`; it is closed when the slot ends."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from spark_bull import BullQueue, NewJob
from spark_bull.core.errors import WorkerFailed
from spark_bull.run.job.running_job import RunningJob
from tests.support.worker import OurWorker, end_all

#: One job at a time in the main thread, and coroutines.
each_way = pytest.mark.parametrize("way", ["one by one", "coroutines"])


class Pool:
    """A state that knows who uses it, and where it was opened and closed."""

    def __init__(self) -> None:
        self.users: list[str] = []
        self.steps: list[str] = ["opened"]

    def close(self) -> None:
        self.steps.append("closed")


class AsyncPool(Pool):
    async def close(self) -> None:
        await asyncio.sleep(0)
        super().close()


def use(job: RunningJob) -> Any:
    assert "closed" not in job.state.steps
    job.state.users.append(job.id)


async def use_in_loop(job: RunningJob) -> Any:
    use(job)


async def use_nothing(job: RunningJob) -> None:
    pass


def settings(way: str, setup: Callable[[], Any]) -> dict[str, Any]:
    """The arguments of a worker that uses the state."""
    processor = use_in_loop if way == "coroutines" else use
    return {"processor": processor, "setup": setup, "concurrency": 1 if way == "one by one" else 2}


class Recorded:
    """Functions that return the same kinds of state, and the states that they have made."""

    def __init__(self) -> None:
        self.made: list[Pool] = []

    def value(self) -> Pool:
        self.made.append(Pool())
        return self.made[-1]

    def generator(self) -> Iterator[Pool]:
        pool = Pool()
        self.made.append(pool)
        yield pool
        pool.close()

    manager = contextmanager(generator)

    async def coroutine(self) -> Pool:
        asyncio.get_running_loop()
        self.made.append(AsyncPool())
        return self.made[-1]

    async def async_generator(self) -> AsyncIterator[Pool]:
        pool = AsyncPool()
        self.made.append(pool)
        yield pool
        await pool.close()

    async_manager = asynccontextmanager(async_generator)


@pytest.mark.parametrize(
    ("way", "kind"),
    [
        ("one by one", "value"),
        ("one by one", "generator"),
        ("one by one", "manager"),
        ("threads", "generator"),
        ("coroutines", "value"),
        ("coroutines", "generator"),
        ("coroutines", "coroutine"),
        ("coroutines", "async_generator"),
        ("coroutines", "async_manager"),
    ],
)
def test_all_jobs_of_a_slot_share_a_state_that_is_closed_when_the_slot_ends(
    queue: BullQueue, way: str, kind: str
) -> None:
    recorded = Recorded()
    ids = queue.add_many(NewJob({}) for _ in range(6)).ids
    end_all(queue, **settings(way, getattr(recorded, kind)))
    (pool,) = recorded.made
    assert sorted(pool.users) == sorted(ids)
    assert pool.steps == ["opened", "closed"]


def test_a_setup_of_coroutine_functions_runs_in_their_event_loop_and_closes_in_the_same_task(
    queue: BullQueue,
) -> None:
    seen: list[object] = []

    @asynccontextmanager
    async def setup() -> AsyncIterator[None]:
        seen.append(asyncio.current_task())
        yield
        seen.append(asyncio.current_task())

    def plain() -> None:
        seen.append(asyncio.get_running_loop())

    async def processor(job: RunningJob) -> None:
        seen.append(asyncio.get_running_loop())

    for made, function in ((setup, use_nothing), (plain, processor)):
        queue.add({})
        end_all(queue, function, setup=made, concurrency=2)
        assert len(seen) == 2
        assert seen[0] is seen[1]
        seen.clear()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no asyncio.TaskGroup")
def test_an_asynchronous_setup_may_have_a_task_group_and_a_timeout(
    queue: BullQueue, caplog: pytest.LogCaptureFixture
) -> None:
    steps: list[str] = []

    async def beat() -> None:
        steps.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            steps.append("ended")

    @asynccontextmanager
    async def setup() -> AsyncIterator[None]:
        async with asyncio.timeout(3_600), asyncio.TaskGroup() as group:
            task = group.create_task(beat())
            yield
            task.cancel()

    queue.add({})
    end_all(queue, use_nothing, setup=setup, concurrency=2)
    assert steps == ["begun", "ended"]
    assert "closing what `setup` returned failed" not in caplog.text


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no asyncio.TaskGroup")
def test_a_state_that_ends_by_itself_ends_the_slot_once_its_jobs_have_ended(queue: BullQueue) -> None:
    started, ended = threading.Event(), threading.Event()

    async def beat() -> None:
        while not started.is_set():
            await asyncio.sleep(0.01)
        raise OSError("connection lost")

    @asynccontextmanager
    async def setup() -> AsyncIterator[None]:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(beat())
                yield
        finally:
            ended.set()

    async def processor(job: RunningJob) -> None:
        started.set()
        while not ended.is_set():
            await asyncio.sleep(0.01)

    queue.add({})
    ours = OurWorker(queue.handle, processor, setup=setup, concurrency=2)
    with pytest.raises(WorkerFailed, match="expected the state of a slot to last as long as the slot, it ended: "):
        ours.loop.run()
    assert queue.counts()["completed"] == 1


@each_way
def test_a_setup_that_fails_ends_the_slot_before_it_claims_a_job(queue: BullQueue, way: str) -> None:
    def setup() -> None:
        raise KeyError("MODEL")

    queue.add({})
    said = r"expected `setup` to return the state of a slot, it raised KeyError: 'MODEL'$"
    with pytest.raises(WorkerFailed, match=said):
        OurWorker(queue.handle, **settings(way, setup)).loop.run()
    assert queue.counts()["wait"] == 1
    (job,) = queue.page("wait")
    assert not job.attempts_started


@each_way
def test_an_error_while_the_state_is_closed_is_logged(
    queue: BullQueue, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Pool):
        def close(self) -> None:
            raise OSError("gone")

    queue.add({})
    end_all(queue, **settings(way, Broken))
    assert queue.counts()["completed"] == 1
    assert "closing what `setup` returned failed (OSError: gone)" in caplog.text
