"""process_batch with a batch of claimed jobs that the test made, and in a query."""

from __future__ import annotations

import json
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_bull import (
    BullQueue,
    DelayedError,
    NewJob,
    OptionError,
    RawJson,
    SparkBullError,
    UnrecoverableError,
    process_batch,
)
from spark_bull.core.model.limits import WorkSettings
from spark_bull.core.model.outcomes import Outcomes, Retried
from spark_bull.core.queue.work.claim import unpack_claimed, work
from spark_bull.core.queue.work.claim_ledger import ClaimLedger
from spark_bull.spark.work.claim_batch import claim_batch
from tests.spark.conftest import Bull
from tests.support.wait import PATIENCE_S, wait_until

HOUR_MS = 3_600_000
Process = Callable[..., None]


@pytest.fixture
def process(bull: Bull) -> Process:
    """Processes a batch of the queue q."""

    def process(batch: DataFrame, processor: Any, **given: Any) -> None:
        process_batch(batch, processor, queue="q", options=bull.options, **given)

    return process


def claimed(queue: BullQueue, spark: SparkSession, jobs: int) -> tuple[DataFrame, ClaimLedger, str]:
    """A batch of claimed jobs, the ledger of its reader, and the token of their locks."""
    ledger = ClaimLedger(queue.handle, "reader")
    ((portion, *_),) = ledger.claim(WorkSettings("reader", HOUR_MS), jobs)
    rows = claim_batch(queue.handle, portion.token, unpack_claimed(portion.packed))
    return spark.createDataFrame(pa.Table.from_batches([rows])), ledger, portion.token


def test_rows_settle_their_jobs_bad_ones_fail_alone_and_a_repeated_batch_settles_nothing_twice(
    queue: BullQueue, spark: SparkSession, bull: Bull, process: Process, caplog: pytest.LogCaptureFixture
) -> None:
    @f.udf("int")
    def risky(n: int) -> int:
        if n == 7:
            raise ValueError("seven")
        return n + 1

    def processor(jobs: DataFrame) -> DataFrame:
        n = f.col("data.n")
        following = f.struct(f.struct(n.alias("of")).alias("data"), f.lit("next").alias("queue"))
        return jobs.where("data.n != 5").select(
            "id",
            "token",
            f.when(n != 3, risky(n)).alias("returnvalue"),
            f.when(n == 3, "three").alias("error"),
            f.when(n == 1, f.array(following)).alias("then"),
        )

    payloads = [json.dumps({"n": n}) for n in range(12)] + ["{broken", '{"n": "many"}']
    once = queue.add({"n": 1}, delivery="at-most-once")
    ids = queue.add_many(NewJob(RawJson(payload), attempts=2) for payload in payloads).ids
    batch, *_ = claimed(queue, spark, 15)
    for _ in range(2):
        process(batch, processor, payload_schema="n INT")
        completed = {job.data["n"]: job.returnvalue for job in queue.page("completed")}
        assert completed == {n: n + 1 for n in range(12) if n not in (3, 5, 7)}
        ended = {state: {job.id: str(job.failed_reason) for job in queue.page(state)} for state in ("failed", "wait")}
        assert {state: {*jobs} for state, jobs in ended.items()} == {
            "failed": {once, ids[12]},
            "wait": {ids[3], ids[5], ids[7], ids[13]},
        }
        failed = ended["failed"] | ended["wait"]
        assert "Process it with a function of a job" in failed[once]
        assert (failed[ids[3]], "seven" in failed[ids[7]]) == ("three", True)
        assert "for this job, got none" in failed[ids[5]]
        assert all("expected the payload to be JSON" in failed[wrong] for wrong in ids[12:])
        with BullQueue("next", **bull.options) as following:
            assert [job.data for job in following.page("wait")] == [{"of": 1}]
    said = [record.getMessage() for record in caplog.records]
    assert any(one.startswith(f"process_batch: job {ids[7]} of queue q failed: ") for one in said)


def test_what_the_processor_raises_says_how_a_job_ends(queue: BullQueue, spark: SparkSession, process: Process) -> None:
    @f.udf("int")
    def by_n(n: int) -> int:
        raise {0: UnrecoverableError("never"), 1: DelayedError(HOUR_MS)}.get(n, ValueError("again"))

    def processor(jobs: DataFrame) -> DataFrame:
        if jobs.where("data.n = 3").count():
            raise UnrecoverableError("on the driver")
        return jobs.select("id", "token", by_n("data.n").alias("returnvalue"))

    queue.add_many(NewJob({"n": n}, attempts=3, backoff={"type": "mine"}) for n in range(4))
    batch, *_ = claimed(queue, spark, 4)
    process(batch, processor, payload_schema="n INT", backoff_strategy=lambda made, kind, error, job: HOUR_MS)
    assert {job.data["n"]: job.failed_reason for job in queue.page("failed")} == {0: "never", 3: "on the driver"}
    assert {job.data["n"]: job.attempts_made for job in queue.page("delayed")} == {1: 0, 2: 1}


def test_no_plan_lists_the_jobs_beside_one_that_fails(queue: BullQueue, spark: SparkSession, process: Process) -> None:
    _, bad, *_ = queue.add_many(NewJob({"n": n}) for n in range(4)).ids
    batch, *_ = claimed(queue, spark, 4)
    plans: list[str] = []

    def processor(jobs: DataFrame) -> DataFrame:
        assert jobs.columns == batch.columns
        plans.append(jobs._jdf.queryExecution().analyzed().toString())
        is_bad = f.col("id") == bad
        return jobs.withColumn("returnvalue", f.when(is_bad, f.raise_error(f.lit("bad"))).otherwise(f.lit("1")))

    process(batch, processor)
    assert [(job.id, "bad" in str(job.failed_reason)) for job in queue.page("failed")] == [(bad, True)]
    assert queue.counts()["completed"] == 3
    assert len(plans) > 1
    assert not any(" IN (" in one for one in plans)


@pytest.mark.parametrize("raises", [False, True])
def test_a_job_that_was_claimed_again_is_settled_only_by_its_new_claim(
    queue: BullQueue, spark: SparkSession, process: Process, raises: bool
) -> None:
    """Jobs are claimed ahead during a batch, and a job whose attempt failed may be claimed again at once."""
    again, other = queue.add_many([NewJob({"n": 1}, attempts=3), NewJob({"n": 2})]).ids
    batch, ledger, token = claimed(queue, spark, 2)

    def processor(jobs: DataFrame) -> DataFrame:
        if ledger.end() == 2:
            retried = Retried(again, "once more", "[]", 0, lifo=False)
            work(queue.handle, WorkSettings("settle"), Outcomes(token, retried=[retried]), 0)
            assert [taken.ids for taken in ledger.claim(WorkSettings("reader", HOUR_MS), 1)] == [[again]]
        if raises:
            raise ValueError("bad")
        return jobs.where("false").withColumn("returnvalue", f.lit(1))

    process(batch, processor)
    (failed,) = queue.page("failed")
    assert failed.id == other
    assert ("bad" if raises else "got none") in str(failed.failed_reason)
    (active,) = queue.page("active")
    assert (active.id, active.attempts_made, active.attempts_started) == (again, 1, 2)


@pytest.mark.parametrize(
    ("result", "error"),
    [
        (lambda jobs: jobs.selectExpr("id", "'1' AS returnvalue"), "columns id, token and returnvalue or error, got: "),
        (lambda _: 1, "to return a DataFrame, got: int"),
    ],
)
def test_a_processor_that_settles_no_job_fails_the_query_and_no_job(
    queue: BullQueue, spark: SparkSession, process: Process, result: Any, error: str
) -> None:
    queue.add({"n": 1})
    batch, *_ = claimed(queue, spark, 1)
    with pytest.raises(OptionError, match=error):
        process(batch, result)
    assert queue.counts()["active"] == 1


def test_a_query_that_is_stopped_in_a_batch_fails_no_job(
    queue: BullQueue, bull: Bull, process: Process, tmp_path: Path
) -> None:
    begun, stopped, raised = threading.Event(), threading.Event(), list[BaseException]()

    def blocking(_: DataFrame) -> DataFrame:
        begun.set()
        stopped.wait(PATIENCE_S)
        raise RuntimeError("too late")

    def batches(batch: DataFrame, _: int) -> None:
        try:
            process(batch, blocking)
        except BaseException as error:
            raised.append(error)
            raise

    queue.add_many(NewJob({"n": n}) for n in range(3))
    jobs = bull.stream(mode="claim", maxJobsPerTrigger=3)
    query = jobs.writeStream.foreachBatch(batches).option("checkpointLocation", str(tmp_path)).start()
    assert begun.wait(PATIENCE_S)
    stopping = threading.Thread(target=query.stop)
    stopping.start()
    wait_until(lambda: not query.isActive, "the query to stop")
    stopped.set()
    stopping.join(PATIENCE_S)
    wait_until(lambda: bool(raised), "the batch to be abandoned")
    assert isinstance(raised[0], SparkBullError)
    assert "the query was stopped" in str(raised[0])
    # Longer texts overflow the stack of Spark, which searches them for the reason.
    text = "".join(traceback.format_exception(raised[0]))
    assert len(text.partition("py4j.protocol.Py4JJavaError: An error occurred while calling")[2]) < 100
    assert query.exception() is None
    assert queue.counts()["active"] == 3
