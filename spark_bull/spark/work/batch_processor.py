"""Processes the micro-batches of the engine `stream`: transforms claimed jobs, and settles the result."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from threading import Event
from typing import Any, NamedTuple, TypeVar

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from spark_bull.core.error_text import trace_of
from spark_bull.core.errors import ConnectionLost, SparkBullError, control_error
from spark_bull.core.queue.work.claim import extend
from spark_bull.run.claims.job_signal import retry_until_connected
from spark_bull.run.job.bisection import Abandoned, run_bisected
from spark_bull.run.job.forks import in_this_process
from spark_bull.run.slot.failure_log import FailureLog
from spark_bull.spark.platform.spark_errors import first_line, python_trace, sendable_errors
from spark_bull.spark.work.error_columns import ERROR_SCHEMA, error_columns
from spark_bull.spark.work.payload_column import invalid_payloads, parsed_payloads
from spark_bull.spark.work.settle.frame import checked_frame
from spark_bull.spark.work.settle.plan import SETTLED_COLUMNS, plan_settle
from spark_bull.spark.work.settle.sink import SETTLED, Settling, failures_of
from spark_bull.spark.work.stream_plan import StreamPlan
from spark_bull.spark.work.tokens import read_settle_token
from spark_bull.spark.work.udf_transform import INPUT, OUTPUT, UdfTransformation

log = logging.getLogger("spark_bull")

T = TypeVar("T")


class _Claimed(NamedTuple):
    """A job of a batch, and its column `token`."""

    id: str
    token: str


class BatchProcessor:
    """The function of `foreachBatch`. Picklable: with Spark Connect, it runs in a process of the server.

    stopping: set when the worker stops, in this process only. A process of the server ends with the query.
    """

    def __init__(self, plan: StreamPlan, stopping: Event | None = None) -> None:
        self._plan = plan
        self._stopping = stopping or Event()
        self._failures = FailureLog(plan.reader)
        #: How many attempts have failed.
        self.failed = 0

    def __reduce__(self) -> tuple[object, ...]:
        return BatchProcessor, (self._plan,)

    def __call__(self, batch: DataFrame, _number: int) -> None:
        """Processes a micro-batch. If it fails, the unsettled jobs are bisected until those that fail are alone."""
        observed, failed = Observation(), False
        try:
            settled = self._settle(batch.observe(observed, f.count(f.lit(1)).alias("jobs")))
            # PySpark 4.0 waits forever for an observation that the optimizer has removed, as no row is left.
            if settled.total() and not settled["lost"] and settled.total() == observed.get["jobs"]:
                return
        except BaseException as error:
            self._check_running()
            if isinstance(error, SparkBullError) and not isinstance(error, ConnectionLost):
                raise
            log.warning(
                "worker %s: a batch failed, retrying its jobs in parts: %s", self._plan.reader, first_line(error)
            )
            failed = True
        claimed = _claimed_in(batch)
        if failed:
            self._settle_in_parts(batch, claimed)
        pending = self._pending(claimed)
        if pending:
            self._fail_invalid(self._only(batch, pending))
            missing = LookupError("expected the transformation to return a row for this job, got none")
            self._fail(batch, dict.fromkeys(self._pending(claimed), missing))

    def _settle_in_parts(self, batch: DataFrame, claimed: Sequence[_Claimed]) -> None:
        pending = self._pending(claimed)
        results = run_bisected(pending, lambda jobs: self._settle_these(batch, jobs))
        errors = {jobs[0]: error for jobs, error in results if isinstance(error, BaseException)}
        self._fail(batch, {job: errors[job] for job in self._pending(list(errors))})

    def _settle_these(self, batch: DataFrame, claimed: Sequence[_Claimed]) -> None:
        """Settles these jobs of a batch, except those that an earlier, failed attempt has settled."""
        self._check_running()
        pending = self._pending(claimed)
        try:
            if pending:
                self._settle(self._only(batch, pending))
        except BaseException:
            self._check_running()
            raise

    def _only(self, batch: DataFrame, jobs: Sequence[_Claimed]) -> DataFrame:
        """The rows of these jobs. A join: each literal of a condition is an object of the JVM."""
        only = batch.sparkSession.createDataFrame(jobs, "only_id STRING, only_token STRING")
        is_one = (f.col("id") == f.col("only_id")) & (f.col("token") == f.col("only_token"))
        return batch.join(f.broadcast(only), is_one, "left_semi")

    def _check_running(self) -> None:
        """Raises Abandoned while the worker is being stopped: errors of cancelled Spark jobs must not fail jobs."""
        if self._stopping.is_set():
            raise Abandoned(f"worker {self._plan.reader} is being stopped")

    def _settle(self, batch: DataFrame) -> Counter[str]:
        """Transforms and settles the jobs that can be processed; returns the number of jobs by outcome."""
        jobs = batch.where(f.col("deferredFailure").isNull())
        if self._plan.payload is not None:
            jobs = parsed_payloads(jobs, self._plan.payload)
        if isinstance(self._plan.transform, UdfTransformation):
            return self._write(jobs.select(*INPUT), self._plan.transform)
        with sendable_errors():
            result = checked_frame(in_this_process(self._plan.transform, jobs))
        return self._write(result.select(*[name for name in SETTLED_COLUMNS if name in result.columns]))

    def _fail_invalid(self, jobs: DataFrame) -> None:
        """Fails jobs with a deferred failure, and jobs whose payload does not match the schema."""
        outcome = ("id", "token", "error", "unrecoverable")
        deferred = jobs.where(f.col("deferredFailure").isNotNull())
        self._write(
            deferred.withColumn("error", f.col("deferredFailure"))
            .withColumn("unrecoverable", f.lit(True))
            .select(*outcome)
        )
        if self._plan.payload is not None:
            self._write(invalid_payloads(jobs.where(f.col("deferredFailure").isNull()), self._plan.payload))

    def _write(self, rows: DataFrame, udf: UdfTransformation | None = None) -> Counter[str]:
        """Settles without the sink mode=settle, whose planning and commit take longer than a small batch.

        rows: outcomes, or what `udf` makes them of.
        """
        options, strategy = {**self._plan.settle, "mode": "settle"}, self._plan.strategy
        schema = rows.schema if udf is None else OUTPUT
        plan = replace(self._retry(lambda: plan_settle(options, schema, strategy)), patient=True)
        counts = Counter[str]()
        for row in rows.mapInArrow(Settling(plan, udf), SETTLED).collect():
            counts.update(row.counts)
            for one in failures_of(row):
                self._failures.log(one)
        self.failed += counts["failed"] + counts["retried"]
        return counts

    def _pending(self, claimed: Sequence[_Claimed]) -> list[_Claimed]:
        """The unsettled jobs: their locks are still the ones of their claim."""
        by_token: dict[str, list[_Claimed]] = {}
        for job in claimed:
            by_token.setdefault(read_settle_token(job.token).lock_token, []).append(job)
        locked = {token: self._locked(token, [job.id for job in jobs]) for token, jobs in by_token.items()}
        return [job for token, jobs in by_token.items() for job in jobs if job.id in locked[token]]

    def _locked(self, token: str, job_ids: Sequence[str]) -> list[str]:
        return self._retry(lambda: extend_locked(self._plan, token, job_ids))

    def _retry(self, call: Callable[[], T]) -> T:
        """Retries a call while Redis is unreachable, or the queue is damaged. Raises Abandoned if the worker is stopped
        meanwhile.
        """

        def pause(seconds: float) -> None:
            self._stopping.wait(seconds)
            self._check_running()

        warn = partial(log.warning, "worker %s: %s (%s)", self._plan.reader)
        return retry_until_connected(call, warn, pause=pause, until_repaired=True)

    def _fail(self, batch: DataFrame, errors: Mapping[_Claimed, BaseException]) -> None:
        """Fails jobs of a batch, each with its own error."""
        if not errors:
            return
        schema = StructType([StructField("id", StringType()), StructField("token", StringType()), *ERROR_SCHEMA])
        rows = [
            tuple({**job._asdict(), **_columns_of(error)}.get(name) for name in schema.names)
            for job, error in errors.items()
        ]
        named = batch.sparkSession.createDataFrame(rows, schema)
        self._write(batch.select("id", "token").join(f.broadcast(named), ["id", "token"]))


def extend_locked(plan: StreamPlan, token: str, job_ids: Sequence[str]) -> list[str]:
    """Extends the locks of these jobs; returns the ids of those whose lock holds the token. Raises ConnectionLost."""
    gone = set(extend(plan.handle, token, job_ids, plan.lock_ms))
    return [job_id for job_id in job_ids if job_id not in gone]


def _claimed_in(batch: DataFrame) -> list[_Claimed]:
    return [_Claimed(row.id, row.token) for row in batch.select("id", "token").collect()]


def _columns_of(error: BaseException) -> dict[str, Any]:
    """Returns the columns that settle a job for which Spark or a UDF has raised an error."""
    stack = python_trace(error) or trace_of(error)
    raised = control_error(stack)
    return error_columns(raised or error, "" if raised else first_line(error), stack)
