"""While a chunk of a function of DataFrames runs, its slot settles the last chunk and claims the next one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from spark_bull import BullQueue, FlowJob
from spark_bull.core.errors import RateLimitError
from spark_bull.core.queue.manage.cancel import cancel_requests
from spark_bull.run.job.job_runner import Abandoned
from spark_bull.run.slot import chunk_loop
from spark_bull.run.slot.queue_calls import SCRIPT_JOBS
from tests.conformance.chunks_ahead import CHUNK, Frames, add, await_next_chunk, claims_ahead
from tests.support.wait import PATIENCE_S, wait_until
from tests.support.work_bench import each_dialect
from tests.support.worker import OurWorker

HOUR_MS = 3_600_000


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """No chunk returns by itself before a test has seen it."""
    monkeypatch.setattr(chunk_loop, "RETURN_S", PATIENCE_S)


def waiting(queue: BullQueue) -> list[int]:
    counts = queue.counts()
    return [job.parsed()["n"] for job in queue.page("paused" if counts.get("paused") else "wait")]


@each_dialect
def test_the_next_chunk_is_claimed_and_the_last_one_settled_while_one_runs(queue: BullQueue) -> None:
    frames = Frames(lambda: await_next_chunk(queue))
    add(queue, 3 * CHUNK + 1)
    with OurWorker(queue.handle, runner=frames, chunk_size=CHUNK) as worker:
        wait_until(lambda: queue.counts()["completed"] == 3 * CHUNK + 1, "all jobs")
    assert frames.calls == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
    assert (worker.stats.completed, worker.stats.lost) == (3 * CHUNK + 1, 0)


@each_dialect
@pytest.mark.parametrize("what", ["stop", "pause of the worker", "pause of the queue", "rate limit"])
def test_a_chunk_that_was_claimed_ahead_returns_in_its_order(queue: BullQueue, what: str) -> None:
    """A slot that is to stop, a paused queue, and one whose rate is limited start no job."""

    def begin() -> BaseException | None:
        await_next_chunk(queue)
        if what == "stop":
            assert worker.control.request("stop")
        elif what == "pause of the worker":
            worker.control.pause()
        elif what == "pause of the queue":
            queue.pause()
        return RateLimitError(HOUR_MS) if what == "rate limit" else None

    frames = Frames(begin)
    add(queue, 4 * CHUNK)
    with OurWorker(queue.handle, runner=frames, chunk_size=CHUNK) as worker:
        wait_until(lambda: len(frames.calls) == 2 and queue.counts()["active"] == 0, "the next chunk to return")
        limited = [2 * CHUNK - 1] if what == "rate limit" else []
        assert [n for n in waiting(queue) if n not in limited] == list(range(2 * CHUNK, 4 * CHUNK))
        assert queue.counts()["completed"] == 2 * CHUNK - len(limited)
        worker.control.resume()
        queue.resume()
        if what.startswith("pause"):
            wait_until(lambda: queue.counts()["completed"] == 4 * CHUNK, "the others")
    assert [n for numbers in frames.calls for n in numbers] == list(range(CHUNK * len(frames.calls)))


@each_dialect
def test_a_chunk_that_was_claimed_ahead_returns_while_another_one_takes_long(
    queue: BullQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunk_loop, "RETURN_S", 2.0)

    def take_long() -> None:
        wait_until(lambda: worker.loop._stats.returned == CHUNK, "the next chunk to return")

    frames = Frames(take_long)
    add(queue, 3 * CHUNK)
    with OurWorker(queue.handle, runner=frames, chunk_size=CHUNK) as worker:
        wait_until(lambda: queue.counts()["completed"] == 3 * CHUNK, "all jobs")
    assert frames.calls == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


@pytest.mark.parametrize("returns", [False, True])
def test_a_cancelled_job_that_was_claimed_ahead_fails_without_being_run(queue: BullQueue, returns: bool) -> None:
    ids = add(queue, 3 * CHUNK)

    def cancel() -> None:
        await_next_chunk(queue)
        queue.cancel(ids[-1], "too late")
        wait_until(lambda: not cancel_requests(queue.handle, [ids[-1]]), "the slot to read the request")
        if returns:
            worker.control.pause()

    frames = Frames(cancel)
    with OurWorker(queue.handle, runner=frames, chunk_size=CHUNK) as worker:
        wait_until(lambda: queue.counts()["failed"] == 1, "the cancelled job to fail")
        worker.control.resume()
        wait_until(lambda: queue.counts()["completed"] == 3 * CHUNK - 1, "the others")
    assert frames.calls == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert [job.failed_reason for job in queue.page("failed")] == ["cancelled: too late"]


@each_dialect
def test_both_chunks_return_when_nothing_waits_for_them(queue: BullQueue) -> None:
    def end() -> None:
        await_next_chunk(queue)
        assert worker.control.request("end")
        wait_until(lambda: queue.counts()["active"] == 0, "both chunks to return")

    frames = Frames(end)
    add(queue, 4 * CHUNK)
    with OurWorker(queue.handle, runner=frames, chunk_size=CHUNK) as worker:
        wait_until(lambda: len(frames.calls) == 2 and queue.counts()["active"] == 0, "the end")
    assert worker.error is None
    assert frames.calls == [[0, 1, 2], [3, 4, 5]]
    assert sorted(waiting(queue)) == list(range(CHUNK, 4 * CHUNK))


@each_dialect
def test_a_chunk_that_was_claimed_ahead_returns_when_the_slot_fails(queue: BullQueue) -> None:
    def fail() -> None:
        await_next_chunk(queue)
        raise Abandoned("no session")

    add(queue, 4 * CHUNK)
    worker = OurWorker(queue.handle, runner=Frames(fail), chunk_size=CHUNK)
    with pytest.raises(Abandoned, match="no session"), worker:
        wait_until(lambda: worker.loop._stats.returned == CHUNK, "the chunk to return")
    assert waiting(queue) == list(range(2 * CHUNK, 4 * CHUNK))


def test_no_chunk_is_claimed_ahead_once_the_queue_has_a_limit(queue: BullQueue) -> None:
    """What is left of the last chunk is settled all the same."""
    size = 2 * SCRIPT_JOBS + 1

    def limit() -> None:
        await_next_chunk(queue, size)
        queue.set_limits(concurrency=10 * size)

    add(queue, 4 * size)
    with OurWorker(queue.handle, runner=Frames(limit), chunk_size=size) as worker:
        wait_until(lambda: queue.counts()["completed"] == 4 * size, "all jobs")
    assert (worker.stats.claimed, worker.stats.returned) == (4 * size, 0)


def test_no_chunk_is_claimed_ahead_in_a_queue_with_a_limit(queue: BullQueue) -> None:
    active = list[int]()

    def look() -> None:
        wait_until(lambda: queue.counts()["active"] > CHUNK or not claims_ahead(), "a claim")
        active.append(queue.counts()["active"])

    add(queue, 3 * CHUNK)
    queue.set_limits(concurrency=3 * CHUNK)
    with OurWorker(queue.handle, runner=Frames(look), chunk_size=CHUNK):
        wait_until(lambda: queue.counts()["completed"] == 3 * CHUNK, "all jobs")
    assert active == [CHUNK]


def add_children(queue: BullQueue) -> None:
    queue.add_flow(FlowJob({"n": -1}, children=[FlowJob({"n": n}) for n in range(3 * CHUNK)]))


@pytest.mark.parametrize(
    ("fill", "settings"),
    [
        (partial(add, count=3 * CHUNK), {"min_chunk": 2}),
        (partial(add, count=2 * CHUNK), {}),
        (add_children, {}),
    ],
)
def test_no_chunk_is_claimed_ahead_with_min_chunk_at_the_end_of_a_queue_and_beside_children(
    queue: BullQueue, fill: Callable[[BullQueue], object], settings: dict[str, int]
) -> None:
    """The next jobs could be the parents of the children."""
    found = list[bool]()
    fill(queue)
    with OurWorker(queue.handle, runner=Frames(lambda: found.append(claims_ahead())), chunk_size=CHUNK, **settings):
        wait_until(lambda: found and queue.counts()["active"] == queue.counts()["wait"] == 0, "all jobs")
    assert found == [False]
