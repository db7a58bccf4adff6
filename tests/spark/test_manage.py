"""Writes with mode=manage: rows of a DataFrame change existing jobs, exactly once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row
from redis import Redis

from spark_bull.core.model.jobs import NewJob
from spark_bull.core.queue.bull_queue import BullQueue
from tests.spark.conftest import Bull, Files, OpenQueue, refusal

HOUR = 3_600_000


def manage(bull: Bull, queue: BullQueue, frame: DataFrame, **options: object) -> None:
    bull.write(frame, queue.name, mode="manage", protocol=queue.protocol, **options)


def failed_jobs(queue: BullQueue, count: int) -> list[str]:
    ids = queue.add_many([NewJob({"n": n, "to": "ada@exmaple.org"}, name=None) for n in range(count)]).ids
    for job_id in ids:
        queue.fail(job_id, "no such host: exmaple.org")
    return ids


def counts(queue: BullQueue) -> dict[str, int]:
    return {state: jobs for state, jobs in queue.counts().items() if jobs}


def last_write(bull: Bull, queue: BullQueue) -> Row:
    return bull.read(queue.name, view="writes", protocol=queue.protocol).collect()[0]


def test_failed_jobs_are_mended_with_sql_and_retried(bull: Bull, queue: BullQueue) -> None:
    failed_jobs(queue, 30)
    queue.add_many([NewJob({"n": n}) for n in range(3)])
    mended = bull.read(queue.name, states="failed", protocol=queue.protocol).selectExpr(
        "*", "'retry' AS action", "true AS resetAttempts", "replace(data, 'exmaple', 'example') AS mended"
    )
    manage(bull, queue, mended.drop("data").withColumnRenamed("mended", "data"))
    assert counts(queue) == {"wait": 33}
    jobs = queue.page("wait")
    assert Counter(job.data.get("to") for job in jobs) == {"ada@example.org": 30, None: 3}
    assert {job.attempts_made for job in jobs} == {0}
    record = last_write(bull, queue)
    assert (record.state, record.jobs, record.changed, record.added) == ("finished", 30, 30, 0)


def test_each_row_has_its_own_action(bull: Bull, queue: BullQueue) -> None:
    """conformance/test_changes.py has the effects of all actions."""
    ids = queue.add_many(NewJob({}) for _ in range(5)).ids
    rows: list[tuple[Any, ...]] = [
        (ids[0], "remove", None, None, None, None),
        (ids[1], "delay", HOUR, None, None, None),
        (ids[2], "update", None, '{"a": 1}', None, None),
        (ids[3], "complete", None, None, '"done"', None),
        (ids[4], "fail", None, None, None, "not needed"),
    ]
    schema = "id STRING, action STRING, delay LONG, data STRING, returnvalue STRING, failedReason STRING"
    manage(bull, queue, bull.spark.createDataFrame(rows, schema))
    assert queue.job(ids[0]) is None
    delayed, updated, completed, failed = (queue.job(job_id) for job_id in ids[1:])
    assert (delayed.delay, updated.data) == (HOUR, {"a": 1})
    assert (completed.state, completed.returnvalue) == ("completed", "done")
    assert (failed.state, failed.failed_reason) == ("failed", "not needed")


def test_jobs_that_are_gone_locked_or_in_another_state_are_skipped_and_counted(
    bull: Bull, queue: BullQueue, client: Redis, tmp_path: Path
) -> None:
    (failed,) = failed_jobs(queue, 1)
    waiting = queue.add_many([NewJob({}) for _ in range(2)]).ids
    client.set(queue.handle.keys.lock(waiting[1]), "a worker")
    rows = [(failed, "retry"), ("gone", "retry"), (waiting[0], "retry"), (waiting[1], "remove")]
    frame = bull.spark.createDataFrame(rows, "id STRING, action STRING").coalesce(1)
    manage(bull, queue, frame, resultPath=tmp_path / "outcomes")
    record = last_write(bull, queue)
    assert (record.jobs, record.changed, record.missing, record.locked, record.wrongState) == (4, 1, 1, 1, 1)
    outcomes = bull.spark.read.parquet(str(tmp_path / "outcomes"))
    assert [tuple(row) for row in outcomes.collect()] == [
        (queue.name, failed, "retry", "done"),
        (queue.name, "gone", "retry", "missing"),
        (queue.name, waiting[0], "retry", "wrong_state"),
        (queue.name, waiting[1], "remove", "locked"),
    ]
    assert list(queue.outcomes(record.id)) == []


def test_a_mismatch_fails_the_write_before_a_job_is_changed(bull: Bull, queue: BullQueue) -> None:
    failed = failed_jobs(queue, 5)
    rows = [*((job_id, "retry") for job_id in failed), ("gone", "retry")]
    frame = bull.spark.createDataFrame(rows, "id STRING, action STRING").coalesce(1)
    said = refusal(bull, frame, mode="manage", onMismatch="fail")
    assert "no job was changed (`onMismatch=fail`): the action retry is not possible" in said
    assert f"expected a job gone in queue {queue.name}, found none" in said
    assert counts(queue) == {"failed": 5}


def test_rows_name_their_queue_and_a_struct_is_a_payload(bull: Bull, queue: BullQueue, open_queue: OpenQueue) -> None:
    other = open_queue("other", "bullmq")
    first, second = queue.add({"n": 1}), other.add({"n": 2})
    rows = [(queue.name, first, 10), (other.name, second, 20)]
    frame = bull.spark.createDataFrame(rows, "queue STRING, id STRING, n INT").selectExpr(
        "queue", "id", "named_struct('n', n) AS data", "'critical' AS priority"
    )
    bull.write(frame, None, mode="manage", protocol="bullmq", action="prioritize")
    found = [one.page("prioritized")[0] for one in (queue, other)]
    assert [(job.data, job.priority) for job in found] == [({"n": 10}, 1), ({"n": 20}, 1)]


def test_a_stream_changes_jobs_once_per_batch(bull: Bull, queue: BullQueue, files: Files) -> None:
    files.put(*({"id": job_id} for job_id in failed_jobs(queue, 4)))
    files.write(files.rows("id STRING"), mode="manage", action="retry")
    assert counts(queue) == {"wait": 4}
    assert last_write(bull, queue).changed == 4


#: Columns and options that are wrong, and what is said.
WRONG: list[tuple[str, dict[str, str], str]] = [
    ("'retry' AS action", {}, "expected a column `id` with mode=manage, got none"),
    ("'1' AS id", {"action": "delay"}, "expected a column `delay` for the action delay, got none"),
    ("'7' AS id, 'delay' AS action", {}, "row 0 (job 7): expected a value in column `delay` for the action delay"),
    ("CAST(NULL AS STRING) AS id, 'retry' AS action", {}, "row 0: expected `id` to be the id of a job, got: None"),
    ("'7' AS id, 'delay' AS action, -1L AS delay", {}, "row 0 (job 7): expected `delay` to be ms >= 0, got: -1"),
    ("'7' AS id, 'retry' AS action, 1 AS lifo", {}, "expected column `lifo` to be BOOLEAN, got: INT"),
    ("'7' AS id", {"action": "retry", "onMismatch": "ignore"}, "expected `onMismatch` to be one of skip, fail"),
]


def test_wrong_changes_are_refused_before_a_job_is_changed(bull: Bull, open_queue: OpenQueue) -> None:
    for columns, options, said in WRONG:
        assert said in refusal(bull, bull.spark.sql(f"SELECT {columns}"), mode="manage", protocol="bullmq", **options)
    open_queue("old", "bull").add({})
    other = bull.spark.sql("SELECT 'old' AS queue, '7' AS id, 'retry' AS action")
    assert "partition 0, row 0: expected queue old to speak bullmq" in refusal(
        bull, other, None, mode="manage", protocol="bullmq"
    )
