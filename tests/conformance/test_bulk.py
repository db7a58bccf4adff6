"""One change of all jobs that a condition selects, in every dialect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from redis import Redis

from spark_bull.core.errors import OptionError, StagedDataLost
from spark_bull.core.model.jobs import NewJob
from spark_bull.core.model.read_jobs import Change, FlowJob
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.dispatch import registration
from spark_bull.core.queue.dispatch.registration import VALID_MS, confirm_rows
from spark_bull.core.queue.dispatch.roll_forward import recover
from spark_bull.core.queue.dispatch.write_records import open_writes, read_record
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.jobs.portions import JobFilter
from spark_bull.core.queue.manage import bulk
from spark_bull.core.queue.manage.bulk import BulkChange, abort_change, matching_ids
from tests.support.work_bench import Filled, WorkBench, each_dialect, only_bullmq
from tests.support.writes import register_all

TIMEOUT = JobFilter(reason="TIMEOUT")
RETRY = Change("", "retry", state="failed")


def fill(filled: Filled, jobs: int) -> None:
    """Failed jobs, of which each third has failed by a timeout."""
    ids = [f"job-{n}" for n in range(jobs)]
    filled.put("failed", ids[::3], failedReason="a timeout of the host")
    filled.put("failed", [one for n, one in enumerate(ids) if n % 3], failedReason="bad")


@pytest.mark.parametrize(("jobs", "portion"), [(90, 20), pytest.param(12_000, 1_000, marks=pytest.mark.rest)])
def test_the_jobs_that_a_filter_accepts_are_changed_and_counted(
    filled: Filled, twice: bool, monkeypatch: pytest.MonkeyPatch, jobs: int, portion: int
) -> None:
    monkeypatch.setattr(bulk, "PORTION", portion)
    fill(filled, jobs)
    handle = filled.handle
    change = BulkChange(handle, RETRY)

    def found() -> Iterator[Sequence[str]]:
        yield from matching_ids(handle, "failed", TIMEOUT)
        # They were found, and have left the state since.
        filled.queue.retry("job-0")
        filled.queue.remove("job-3")

    record = change.run(found())
    counts = (record.state, record.jobs, record.changed, record.wrong_state, record.missing)
    assert counts == ("finished", jobs // 3, jobs // 3 - 2, 1, 1)
    assert (change.found, change.done) == (jobs // 3, jobs // 3)
    assert filled.counts() == {"wait": jobs // 3 - 1, "failed": jobs - jobs // 3}
    # Sent again, it finds nothing.
    assert BulkChange(handle, RETRY).run(matching_ids(handle, "failed", TIMEOUT)).jobs == 0


@pytest.mark.parametrize("change", [Change("", "remove"), Change("", "move", to="late"), Change("", "update", data={})])
@pytest.mark.parametrize(("state", "other"), [("failed", "wait"), ("delayed", "wait"), ("wait", "completed")])
def test_a_job_that_has_left_its_state_since_the_search_is_not_changed(
    filled: Filled, twice: bool, change: Change, state: str, other: str
) -> None:
    filled.put(state, ["0", "1", "2"])

    def found() -> Iterator[Sequence[str]]:
        yield from matching_ids(filled.handle, state)
        filled.move("1", state, other)

    record = BulkChange(filled.handle, replace(change, state=state)).run(found())
    assert (record.changed, record.wrong_state, record.missing) == (2, 1, 0)
    assert [(job.id, job.data) for job in filled.read(other)] == [("1", {"id": "1"})]


@only_bullmq
@pytest.mark.parametrize(("action", "left"), [("remove", {}), ("discard-children", {"wait": 1})])
def test_a_parent_is_changed_with_more_children_than_one_script_takes(
    bench: WorkBench, action: str, left: dict[str, int]
) -> None:
    bench.queue.add_flow(FlowJob({}, children=[FlowJob({}) for _ in range(999)]))
    change = BulkChange(bench.handle, Change("", action, state="waiting-children"))
    assert change.run(matching_ids(bench.handle, "waiting-children")).changed == 1
    assert bench.counts() == left


@only_bullmq
def test_a_chain_of_parents_is_removed_although_each_removal_frees_the_next_one(bench: WorkBench) -> None:
    chain = FlowJob({}, job_id="z0")
    for n in range(1, 6):
        chain = FlowJob({}, job_id=f"z{n}", children=[chain])
    bench.queue.add_flow(chain)
    change = BulkChange(bench.handle, Change("", "remove", state="waiting-children"))
    change.run(matching_ids(bench.handle, "waiting-children"))
    assert bench.counts() == {}


def test_a_change_takes_no_room_of_its_queue(
    filled: Filled, twice: bool, monkeypatch: pytest.MonkeyPatch, open_queue: Callable[..., BullQueue]
) -> None:
    monkeypatch.setattr(bulk, "PORTION", 1)
    limited, handle = open_queue(protocol=filled.queue.protocol, max_length=2), filled.handle
    fill(filled, 30)
    change = BulkChange(handle, Change("", "update", data={}))
    monkeypatch.setattr(bulk, "confirm_rows", lambda *of: (confirm_rows(*of), limited.add({"state": "open"})))

    def found() -> Iterator[Sequence[str]]:
        yield from matching_ids(handle, "failed")
        limited.add({"state": "prepared"})

    assert change.run(found()).changed == 30
    assert {job.data["state"] for job in filled.read("wait")} == {"prepared", "open"}


def abort(handle: QueueHandle, write_id: str) -> str | None:
    record = abort_change(handle, write_id)
    return None if record is None else record.state


class AbortedAfterAStep(BulkChange):
    def _note(self, done: int, total: int) -> None:
        super()._note(done, total)
        assert abort(self._handle, self.write_id) == "aborted"


@pytest.mark.parametrize("is_found", [False, True], ids=["in the search", "after a step"])
def test_a_change_that_is_aborted_goes_no_further_and_has_a_record(
    filled: Filled, twice: bool, client: Redis, monkeypatch: pytest.MonkeyPatch, is_found: bool
) -> None:
    monkeypatch.setattr(bulk, "CHUNK_SIZE", 10)
    fill(filled, 30)
    handle = filled.handle
    change = AbortedAfterAStep(handle, RETRY) if is_found else BulkChange(handle, RETRY)

    def found() -> Iterator[Sequence[str]]:
        prepared = read_record(handle, change.write_id)
        assert prepared is not None
        assert prepared.state == "prepared"
        assert filled.queue.writes() == [prepared]
        yield from matching_ids(handle, "failed")
        assert is_found or abort(handle, change.write_id) == "aborted"

    record = change.run(found())
    changed = 10 if is_found else 0
    assert (record.state, record.changed, record.done) == ("aborted", changed, changed)
    assert filled.queue.counts()["failed"] == 30 - changed
    assert filled.queue.writes() == [record]
    assert (open_writes(handle), recover(handle)) == ([], [])
    left = [*client.scan_iter(f"{handle.keys.base}spark:stage:*"), *client.keys(handle.keys.manifest(record.id))]
    # What was staged after the end expires.
    assert all(0 < client.pttl(key) <= VALID_MS for key in left)
    assert not (left and is_found)
    assert abort_change(handle, change.write_id) == record


@each_dialect
def test_the_jobs_of_a_change_can_not_be_waited_for(queue: BullQueue) -> None:
    queue.add({})
    change = BulkChange(queue.handle, Change("", "update", data={}))
    for state in ("prepared", "finished"):
        record = read_record(queue.handle, change.write_id)
        assert (record and record.state) == state
        with pytest.raises(OptionError, match="q to dispatch jobs, but it has mode=manage: see its record"):
            queue.wait_for_write(change.write_id, 0)
        change.run(matching_ids(queue.handle, "wait"))


@each_dialect
def test_a_search_that_takes_too_long_says_so(queue: BullQueue, client: Redis) -> None:
    queue.add({})
    change = BulkChange(queue.handle, Change("", "remove"))

    def found() -> Iterator[Sequence[str]]:
        yield from matching_ids(queue.handle, "wait")
        client.hset(queue.handle.keys.write(change.write_id), "deadline", 1)

    with pytest.raises(StagedDataLost, match=r"to be found within 60 minutes, .* no job was changed. Narrow the cond"):
        change.run(found())
    assert queue.counts()["wait"] == 1


@each_dialect
def test_an_older_write_whose_rows_are_gone_does_not_end_a_change(
    queue: BullQueue, client: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    queue.add({})
    register_all(queue.handle, "old", [[NewJob({})]])
    client.delete(queue.handle.keys.stage("old.0.0"))
    assert BulkChange(queue.handle, Change("", "remove")).run(matching_ids(queue.handle, "wait")).changed == 1
    assert "changing jobs without the lost rows of an older write: write old to queue q" in caplog.text


@each_dialect
def test_a_write_of_spark_that_is_prepared_is_neither_listed_nor_aborted(
    queue: BullQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.add({})

    def confirm(*given: Any) -> Sequence[Any]:
        assert (abort(queue.handle, "w"), queue.writes()) == ("prepared", [])
        return sets_commit_point(*given)

    sets_commit_point = registration._confirm
    monkeypatch.setattr(registration, "KEYS_PER_CALL", 1)
    monkeypatch.setattr(registration, "_confirm", confirm)
    assert register_all(queue.handle, "w", [[NewJob({})]], mode="manage")
    assert (abort(queue.handle, "w"), len(queue.writes())) == ("aborted", 1)


@each_dialect
def test_only_writes_that_change_jobs_are_aborted(queue: BullQueue) -> None:
    queue.add({})
    register_all(queue.handle, "jobs", [[NewJob({})]])
    assert abort(queue.handle, "jobs") == "open"
    assert abort(queue.handle, "none") is None
    recover(queue.handle)
    assert abort(queue.handle, "jobs") == "finished"
    assert queue.counts()["wait"] == 2


def test_an_error_of_the_search_aborts_and_a_wrong_change_begins_nothing(bench: WorkBench) -> None:
    bench.add()

    def found() -> Iterator[Sequence[str]]:
        yield ["1"]
        raise OptionError("a wrong condition")

    with pytest.raises(OptionError, match="a wrong condition"):
        BulkChange(bench.handle, Change("", "update", data={})).run(found())
    assert [record.state for record in bench.queue.writes()] == ["aborted"]
    with pytest.raises(OptionError, match="expected `to` to be another queue"):
        BulkChange(bench.handle, Change("", "move", to=bench.queue.name))
    assert len(bench.queue.writes()) == 1
    assert bench.counts() == {"wait": 1}
