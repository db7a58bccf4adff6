"""Drivers that are killed while they change jobs: another process makes the other changes, and each is made once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from spark_bull import BullQueue, Change, NewJob, SparkBullError
from spark_bull.core.queue.dispatch.write_records import open_writes
from spark_bull.core.queue.manage.bulk import BulkChange, abort_change, matching_ids
from spark_bull.spark.staging import commit
from tests.faults.programs import dies_at, move_all, staged, write_rows

JOBS, CHUNK = 20, 4


@pytest.fixture
def options(queue: BullQueue, redis_url: str, prefix: str) -> dict[str, str]:
    return {
        "url": redis_url,
        "prefix": prefix,
        "queue": "q",
        "protocol": queue.protocol,
        "chunkSize": str(CHUNK),
        "mode": "manage",
        "action": "move",
        "txnAppId": "repair",
        "txnVersion": "1",
    }


def fill(queue: BullQueue) -> None:
    """Adds jobs, two of which lack."""
    queue.add_many(NewJob({"n": "wrong"}, job_id=f"key-{n}") for n in range(JOBS) if n not in (3, 8))


def test_a_file_of_outcomes_that_can_not_be_written_is_an_error_after_the_changes(
    queue: BullQueue, options: dict[str, str], tmp_path: Path
) -> None:
    fill(queue)
    path = tmp_path / "outcomes"
    sink = staged({**options, "resultPath": str(path)}, JOBS)
    path.rmdir()
    path.write_text("in the way")
    with pytest.raises(SparkBullError, match=r"the jobs were changed, but the file .* don't run this write again"):
        sink.commit()
    (record,) = queue.writes()
    assert (record.changed, queue.counts()["wait"]) == (JOBS - 2, 0)
    outcomes = Counter(changed.outcome for changed in queue.outcomes(record.id))
    assert outcomes == {"done": JOBS - 2, "missing": 2}


def test_a_write_that_is_aborted_is_an_error_with_the_number_of_changes(
    queue: BullQueue, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(queue)
    sink = staged(options, JOBS)

    def abort(done: int, total: int) -> None:
        for write_id in open_writes(queue.handle):
            abort_change(queue.handle, write_id)

    monkeypatch.setattr(commit, "_log_progress", abort)
    with pytest.raises(SparkBullError, match=r"write \w+ to q was aborted after 4 of 20 jobs: 4 of them were changed"):
        sink.commit()
    assert [(record.state, record.changed) for record in queue.writes()] == [("aborted", 4)]
    assert queue.counts()["wait"] == JOBS - 2 - 4
    # A repetition with the same identity finds that the write has ended.
    write_rows(options, JOBS)
    assert queue.counts()["wait"] == JOBS - 2 - 4


#: One call prepares the write, two look at prepared writes, one per chunk stages it. The next ones prepare it again,
#: confirm it, and open it in two calls.
PREPARED = JOBS // CHUNK + 4


@pytest.mark.parametrize(
    ("call", "when", "is_registered"),
    [(PREPARED, "after", False), (PREPARED + 1, "after", True), (PREPARED + 5, "before", True)],
    ids=str,
)
def test_a_change_of_all_jobs_that_was_killed_is_finished_when_it_is_started_again(
    queue: BullQueue, redis_url: str, prefix: str, call: int, when: str, is_registered: bool
) -> None:
    queue.add_many(NewJob({"n": n}, job_id=f"key-{n}") for n in range(JOBS))
    assert dies_at(call, when, move_all, redis_url, prefix, queue.protocol, CHUNK)
    assert [record.state for record in queue.writes()] == ["open" if is_registered else "prepared"]
    queue.add({"n": JOBS}, job_id="key-late")
    with BullQueue("later", url=redis_url, prefix=prefix, protocol=queue.protocol) as other:
        assert other.counts()["wait"] == (CHUNK if call > PREPARED + 1 else 0)
        record = BulkChange(queue.handle, Change("", "move", to="later")).run(matching_ids(queue.handle, "wait"))
        assert (record.jobs, record.changed) == ((1, 1) if is_registered else (JOBS + 1, JOBS + 1))
        assert sorted(job.data["n"] for job in other.page("wait")) == [*range(JOBS + 1)]
    left = set() if is_registered else {"prepared"}
    assert {record.state for record in queue.writes()} == {"finished"} | left
    assert sum(record.changed for record in queue.writes()) == JOBS + 1
