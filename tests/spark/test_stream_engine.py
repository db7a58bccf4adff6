"""The engine `stream` without a query, with a batch made by the test."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_bull import BullQueue, NewJob
from spark_bull.core.model.outcomes import Outcomes, Retried
from spark_bull.core.queue.handle.claim_settings import ClaimSettings
from spark_bull.core.queue.handle.handle import CHUNK_SIZE
from spark_bull.core.queue.work.claim import unpack_claimed, work
from spark_bull.core.queue.work.claim_ledger import ClaimLedger
from spark_bull.spark.platform.checkpoint_files import plain_checkpoint_files
from spark_bull.spark.work.batch_processor import BatchProcessor
from spark_bull.spark.work.claim_batch import claim_batch
from spark_bull.spark.work.stream_engine import StreamEngine
from spark_bull.spark.work.stream_plan import StreamPlan

HOUR_MS = 3_600_000


@pytest.mark.parametrize("raises", [False, True])
def test_a_job_that_was_claimed_again_is_settled_only_by_its_new_claim(
    queue: BullQueue, spark: SparkSession, redis_url: str, prefix: str, raises: bool
) -> None:
    """Jobs are claimed ahead during a batch, and a job whose attempt failed may be claimed again at once."""
    again, other = queue.add_many([NewJob({"n": 1}, attempts=3), NewJob({"n": 2})]).ids
    ledger, claim_settings = ClaimLedger(queue.handle, "reader"), ClaimSettings("reader", HOUR_MS)
    ((portion, *_),) = ledger.claim(claim_settings, 2)
    rows = claim_batch(queue.handle, portion.token, unpack_claimed(portion.packed))
    batch = spark.createDataFrame(pa.Table.from_batches([rows]))

    def transform(jobs: DataFrame) -> DataFrame:
        if ledger.end() == 2:
            retried = Retried(again, "once more", "[]", 0, lifo=False)
            work(queue.handle, ClaimSettings("settle"), Outcomes(portion.token, retried=[retried]), 0)
            assert [taken.ids for taken in ledger.claim(claim_settings, 1)] == [[again]]
        if raises:
            raise ValueError("bad")
        return jobs.where("false").withColumn("returnvalue", f.lit(1))

    options = {"url": redis_url, "prefix": prefix, "queue": "q", "protocol": "bullmq"}
    plan = StreamPlan(queue.handle, "reader", {}, options, transform, None, HOUR_MS)
    BatchProcessor(plan)(batch, 0)
    (failed,) = queue.page("failed")
    assert failed.id == other
    assert ("bad" if raises else "got none") in str(failed.failed_reason)
    (active,) = queue.page("active")
    assert (active.id, active.attempts_made, active.attempts_started) == (again, 1, 2)


def test_a_bad_row_fails_alone_and_no_plan_lists_the_other_jobs(
    queue: BullQueue, spark: SparkSession, redis_url: str, prefix: str
) -> None:
    _, bad, *_ = queue.add_many(NewJob({"n": n}) for n in range(4)).ids
    ((portion, *_),) = ClaimLedger(queue.handle, "reader").claim(ClaimSettings("reader", HOUR_MS), 4)
    rows = claim_batch(queue.handle, portion.token, unpack_claimed(portion.packed))
    batch = spark.createDataFrame(pa.Table.from_batches([rows]))
    plans: list[str] = []

    def transform(jobs: DataFrame) -> DataFrame:
        assert jobs.columns == batch.columns
        plans.append(jobs._jdf.queryExecution().analyzed().toString())
        is_bad = f.col("id") == bad
        return jobs.withColumn("returnvalue", f.when(is_bad, f.raise_error(f.lit("bad"))).otherwise(f.lit("1")))

    options = {"url": redis_url, "prefix": prefix, "queue": "q", "protocol": "bullmq"}
    plan = StreamPlan(queue.handle, "reader", {}, options, transform, None, HOUR_MS)
    BatchProcessor(plan)(batch, 0)
    assert [(job.id, "bad" in str(job.failed_reason)) for job in queue.page("failed")] == [(bad, True)]
    assert queue.counts()["completed"] == 3
    assert len(plans) > 1
    assert not any(" IN (" in one for one in plans)


def test_a_job_that_may_run_once_is_refused_by_a_micro_batch(queue: BullQueue, spark: SparkSession) -> None:
    once, _ = queue.add_many([NewJob({"n": 1}, delivery="at-most-once"), NewJob({"n": 2})]).ids
    ((portion, *_),) = ClaimLedger(queue.handle, "reader").claim(ClaimSettings("reader", HOUR_MS), 2)
    rows = claim_batch(queue.handle, portion.token, unpack_claimed(portion.packed)).to_pylist()
    assert [(row["id"] == once, row["deferredFailure"] is not None) for row in rows] == [(True, True), (False, False)]
    assert "process it with a function of a job" in rows[0]["deferredFailure"]


@pytest.mark.parametrize("protocol", ["bull", "bullmq"])
def test_jobs_that_have_not_ended_return_in_their_order(
    spark: SparkSession, redis_url: str, prefix: str, protocol: str
) -> None:
    with BullQueue("q", url=redis_url, prefix=prefix, protocol=protocol) as queue:
        queue.add_many(NewJob({"n": n}) for n in range(4 * CHUNK_SIZE))
        ledger = ClaimLedger(queue.handle, "reader")
        claimed = sum(len(taken.ids) for taken in ledger.claim(ClaimSettings("reader", HOUR_MS), 3 * CHUNK_SIZE + 2))
        assert claimed == 3 * CHUNK_SIZE + 2
        ledger.begin(CHUNK_SIZE + 1)
        plan = StreamPlan(queue.handle, "reader", {}, {}, lambda jobs: jobs, None, HOUR_MS)
        StreamEngine(spark, plan)._return_unsettled()
        assert [job.parsed()["n"] for job in queue.page("wait")] == list(range(4 * CHUNK_SIZE))


def test_a_query_with_a_temporary_checkpoint_writes_it_with_few_processes(
    spark: SparkSession, request: pytest.FixtureRequest
) -> None:
    setting = "spark.sql.streaming.checkpointFileManagerClass"
    request.addfinalizer(lambda: spark.conf.unset(setting))
    with plain_checkpoint_files(spark):
        assert str(spark.conf.get(setting)).endswith(".FileSystemBasedCheckpointFileManager")
        query = spark.readStream.format("rate").load().writeStream.format("noop").start()
    try:
        assert spark.conf.get(setting, None) is None
        query.processAllAvailable()
        assert query.exception() is None
    finally:
        query.stop()
    spark.conf.set(setting, "of the user")
    with plain_checkpoint_files(spark):
        assert spark.conf.get(setting) == "of the user"
    assert spark.conf.get(setting) == "of the user"
