"""The terms of a write in every dialect: maximum length of the queue, and a closed intake.

Each test runs twice: with every script sent once, and with every script sent again after its reply.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from spark_bull.core.errors import IntakeClosed, OptionError, QueueFull, WaitingForChildren
from spark_bull.core.model.jobs import NewJob
from spark_bull.core.model.limits import WorkSettings
from spark_bull.core.model.read_jobs import FlowJob
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.dispatch.registration import register
from spark_bull.core.queue.dispatch.roll_forward import commit, recover, roll_forward
from spark_bull.core.queue.dispatch.write_records import Identity, open_writes
from spark_bull.core.queue.handle.admission import LengthLimit
from spark_bull.core.queue.work.claim import work
from spark_bull.run.job.running_job import RunningJob
from tests.support.jobs import HOUR
from tests.support.wait import wait_until
from tests.support.work_bench import each_dialect_by_name
from tests.support.worker import OurWorker
from tests.support.writes import register_all, stage_all

WAITING = ("wait", "paused", "prioritized", "delayed", "waiting-children")

Open = Callable[..., BullQueue]


@pytest.fixture
def opened(dialect: str, twice: bool, open_queue: Callable[..., BullQueue]) -> Open:
    """Opens the queue with further arguments."""
    return lambda **arguments: open_queue(protocol=dialect, **arguments)


def jobs_of(count: int, first: int = 0, **properties: Any) -> list[NewJob]:
    return [NewJob({"n": n}, job_id=f"j{n}", **properties) for n in range(first, first + count)]


def length(queue: BullQueue) -> int:
    counts = queue.counts()
    return sum(counts.get(state, 0) for state in WAITING)


def ids(queue: BullQueue) -> list[str]:
    return [job.id for job in queue.page("wait")]


def start_all(queue: BullQueue) -> int:
    """Starts all waiting jobs; returns how many."""
    started = 0
    while claimed := len(work(queue.handle, WorkSettings("slot", lock_ms=HOUR), None, 500).jobs):
        started += claimed
    return started


# maximum length


@each_dialect_by_name
def test_a_full_queue_refuses_a_chunk_as_a_whole(opened: Open) -> None:
    queue = opened(max_length=10, chunk_size=4)
    with pytest.raises(QueueFull, match="expected room for 4 jobs in queue q, which has 8 of at most 10") as raised:
        queue.add_many(jobs_of(12))
    assert (raised.value.queue, raised.value.length, raised.value.max_length) == ("q", 8, 10)
    assert ids(queue) == [f"j{n}" for n in range(8)]
    assert queue.add_many(jobs_of(2, 20)).added == 2
    with pytest.raises(QueueFull):
        queue.add({})
    assert length(queue) == 10


def test_a_job_whose_id_exists_needs_no_room(opened: Open) -> None:
    queue = opened(max_length=3)
    queue.add_many(jobs_of(3))
    assert queue.add_many(jobs_of(3)).duplicates == 3
    with pytest.raises(QueueFull):
        queue.add_many(jobs_of(4))
    dropping = opened(max_length=3, when_full="drop")
    added = dropping.add_many([*jobs_of(1, 7), *jobs_of(2), *jobs_of(2, 8)])
    assert (added.added, added.duplicates, added.dropped) == (0, 2, 3)
    assert added.ids == ["", "j0", "j1", "", ""]


@each_dialect_by_name
def test_active_and_finished_jobs_need_no_room_but_all_waiting_ones_do(opened: Open, dialect: str) -> None:
    queue = opened(max_length=6)
    queue.add_many(jobs_of(3))
    assert start_all(queue) == 3
    queue.add_many(jobs_of(2, 3, delay=HOUR))
    queue.add_many(jobs_of(2, 5, **({} if dialect == "bull-1" else {"priority": 2})))
    queue.pause()
    queue.add_many(jobs_of(2, 7))
    with pytest.raises(QueueFull, match="has 6 of at most 6"):
        queue.add({})
    if dialect == "bullmq":
        opened().add_flow(FlowJob({}, "parent", children=[FlowJob({}, "child")]))
        with pytest.raises(QueueFull, match="has 8 of at most 8"):
            opened(max_length=8).add({})


@each_dialect_by_name
def test_jobs_without_room_are_dropped_and_counted(opened: Open) -> None:
    queue = opened(max_length=10, when_full="drop", chunk_size=4)
    added = queue.add_many(jobs_of(15))
    assert (added.added, added.dropped, added.duplicates) == (10, 5, 0)
    assert added.ids == [f"j{n}" for n in range(10)] + [""] * 5
    assert queue.add({}) == ""
    assert length(queue) == 10


def test_writers_wait_for_room_and_do_not_exceed_the_length(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    def write(number: int) -> Sequence[str]:
        queue, jobs = opened(max_length=10, when_full="wait", chunk_size=4), jobs_of(25, 100 * number)
        if number % 2:
            return queue.add_many(jobs).ids
        register_all(queue.handle, f"w{number}", [jobs], 4, **LengthLimit(10, "wait").fields)
        assert roll_forward(queue.handle, f"w{number}").added == 25
        return [str(one.job_id) for one in jobs]

    queue, longest, started = opened(), 0, 0
    with ThreadPoolExecutor(4) as pool:
        writes = [pool.submit(write, number) for number in range(4)]
        said = "a write waits for room: queue q has 10 jobs of at most 10"
        wait_until(lambda: said in caplog.text, "a line in the log")
        while not all(one.done() for one in writes) or length(queue):
            longest = max(longest, length(queue))
            started += start_all(queue)
    assert [one.result() for one in writes] == [[f"j{100 * w + n}" for n in range(25)] for w in range(4)]
    assert started == 100
    assert longest <= 10


@each_dialect_by_name
def test_an_exactly_once_write_is_registered_only_if_all_of_its_jobs_fit(opened: Open) -> None:
    queue, limit = opened(), LengthLimit(10, "fail").fields
    queue.add_many(jobs_of(3))
    plan = stage_all(queue.handle, "w", [jobs_of(8, 10)], **limit)
    with pytest.raises(QueueFull, match=r"which has 3 of at most 10 .*: nothing of this write was added"):
        register("w", [plan], None)
    assert (length(queue), open_writes(queue.handle)) == (3, [])
    start_all(queue)
    assert register("w", [plan], None)
    assert roll_forward(queue.handle, "w").added == 8


def test_jobs_of_a_registered_write_have_their_room(opened: Open) -> None:
    queue = opened()
    register_all(queue.handle, "w", [jobs_of(8)], 3, **LengthLimit(10, "fail").fields)
    assert commit(queue.handle, "w", 0).position == 3
    with pytest.raises(QueueFull, match="has 8 of at most 10"):
        opened(max_length=10).add_many(jobs_of(3, 20))
    with pytest.raises(QueueFull, match="has 8 of at most 10"):
        register_all(queue.handle, "v", [jobs_of(3, 20)], **LengthLimit(10, "fail").fields)
    assert opened(max_length=10, when_full="drop").add_many(jobs_of(3, 20)).dropped == 1
    assert roll_forward(queue.handle, "w").added == 8
    assert length(queue) == 10


def test_a_write_that_was_registered_before_needs_no_room_again(opened: Open) -> None:
    queue, limit, identity = opened(), LengthLimit(5, "fail").fields, Identity("app", 1)
    plan = stage_all(queue.handle, "w", [jobs_of(5)], **limit)
    assert register("w", [plan], identity)
    assert register("w", [plan], identity)
    roll_forward(queue.handle, "w")
    assert not register_all(queue.handle, "again", [jobs_of(5)], identity=identity, **limit)


def test_a_waiting_write_adds_what_fits_and_is_finished_by_anyone(opened: Open) -> None:
    queue = opened()
    register_all(queue.handle, "w", [jobs_of(7), jobs_of(18, 7)], 4, **LengthLimit(10, "wait").fields)
    record = roll_forward(queue.handle, "w", waits=False)
    assert (record.state, record.done, record.added) == ("open", 10, 10)
    assert recover(queue.handle) == []
    assert ids(queue) == [f"j{n}" for n in range(10)]
    assert start_all(queue) == 10
    assert recover(queue.handle) == []
    assert ids(queue) == [f"j{n}" for n in range(10, 20)]
    start_all(queue)
    (record,) = recover(queue.handle)
    assert (record.state, record.added, record.duplicates) == ("finished", 25, 0)
    assert ids(queue) == [f"j{n}" for n in range(20, 25)]


def test_waiting_writes_do_not_block_each_other(opened: Open) -> None:
    queue, limit = opened(), LengthLimit(10, "wait").fields
    for number in (2, 1, 0):
        register_all(queue.handle, f"w{number}", [jobs_of(15, 100 * number)], 4, **limit)
    done = []
    while len(done) < 3:
        done += recover(queue.handle)
        assert length(queue) <= 10
        assert start_all(queue) > 0 or len(done) == 3
    assert [(record.id, record.added) for record in done] == [("w2", 15), ("w1", 15), ("w0", 15)]


def test_a_dropping_write_records_how_many_jobs_it_has_dropped(opened: Open) -> None:
    queue = opened()
    queue.add_many(jobs_of(2, 50))
    register_all(queue.handle, "w", [jobs_of(7), jobs_of(8, 7)], 4, **LengthLimit(10, "drop").fields)
    record = roll_forward(queue.handle, "w")
    assert (record.state, record.jobs, record.added, record.dropped) == ("finished", 15, 8, 7)
    assert length(queue) == 10


def test_a_write_that_replaces_the_queue_finds_it_empty(opened: Open) -> None:
    queue = opened()
    queue.add_many(jobs_of(9, 50))
    assert register_all(queue.handle, "w", [jobs_of(10)], replace=True, **LengthLimit(10, "fail").fields)
    assert roll_forward(queue.handle, "w").added == 10
    with pytest.raises(QueueFull):
        register_all(queue.handle, "v", [jobs_of(11)], replace=True, **LengthLimit(10, "fail").fields)


def test_wrong_limits_of_the_length_are_refused(opened: Open) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"max_length": 0}, "expected `max_length` to be a positive integer"),
        ({"max_length": 1, "when_full": "block"}, "expected `when_full` to be one of fail, wait, drop, got: 'block'"),
        ({"when_full": "wait"}, "expected `max_length` with `when_full`, got none"),
    ]
    for arguments, message in wrong:
        with pytest.raises(OptionError, match=message):
            opened(**arguments)
    with pytest.raises(OptionError, match="expected a queue without `max_length`, as a flow is added whole"):
        opened(max_length=5).add_flow(FlowJob({}))


# closed intake


@each_dialect_by_name
def test_a_closed_queue_refuses_writers_until_it_is_opened(opened: Open) -> None:
    queue = opened()
    queue.add_many(jobs_of(2))
    register_all(queue.handle, "before", [jobs_of(5, 20)])
    assert queue.is_intake_open()
    queue.close_intake()
    assert not queue.is_intake_open()
    for call in (lambda: queue.add({}), lambda: queue.add_many(jobs_of(3, 5))):
        with pytest.raises(IntakeClosed, match="queue q accepts no jobs until") as raised:
            call()
        assert raised.value.queue == "q"
    with pytest.raises(IntakeClosed):
        register_all(queue.handle, "w", [jobs_of(3, 5)])
    if queue.protocol == "bullmq":
        with pytest.raises(IntakeClosed):
            queue.add_flow(FlowJob({}, children=[FlowJob({})]))
    assert (length(queue), open_writes(queue.handle)) == (2, ["before"])
    assert start_all(queue) == 2
    assert [(record.state, record.added) for record in recover(queue.handle)] == [("finished", 5)]
    queue.open_intake()
    assert queue.add_many(jobs_of(3, 5)).added == 3
    register_all(queue.handle, "v", [jobs_of(3, 9)])
    assert roll_forward(queue.handle, "v").added == 3


@pytest.mark.parametrize("dialect", ["bull", "bullmq"], indirect=True)
def test_a_closed_queue_refuses_changes_of_its_schedulers(opened: Open) -> None:
    queue = opened()
    queue.upsert_scheduler("kept", every=HOUR)
    queue.close_intake()
    for name in ("kept", "new"):
        with pytest.raises(IntakeClosed, match="queue q accepts no jobs until"):
            queue.upsert_scheduler(name, every=2 * HOUR)
    assert [(one.id, one.every) for one in queue.schedulers()] == [("kept", HOUR)]
    assert queue.remove_scheduler("kept")


def test_children_and_follow_ups_of_running_jobs_are_added_to_a_closed_queue(opened: Open, open_queue: Open) -> None:
    queue = opened()
    queue.add_many(jobs_of(2))
    queue.close_intake()

    def processor(job: RunningJob) -> None:
        if job.id == "j0":
            job.add_child(NewJob({}, "child"), queue="children")
            raise WaitingForChildren
        if job.id == "j1":
            job.then(NewJob({}, "next", job_id="follow-up"))

    with OurWorker(queue.handle, processor):
        wait_until(lambda: queue.counts()["completed"] == 2, "a job and its follow-up to complete")
        wait_until(lambda: queue.counts()["waiting-children"] == 1, "the other job to wait for its child")
    assert open_queue("children").counts()["wait"] == 1
