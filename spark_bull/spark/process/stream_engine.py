"""The engine `stream`: transforms micro-batches of claimed jobs with a DataFrame function, and settles the result."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any, Final, NamedTuple, TypeVar

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StringType, StructField, StructType

from spark_bull.error_text import trace_of
from spark_bull.errors import ConnectionLost, SparkBullError, WorkerFailed, control_error
from spark_bull.model.outcomes import Outcomes
from spark_bull.queue.core.claim_settings import ClaimSettings
from spark_bull.queue.core.handle import CHUNK_SIZE, QueueHandle
from spark_bull.queue.process.claim import extend, parts_to_return, work
from spark_bull.queue.process.claim_ledger import ClaimLedger
from spark_bull.spark.json.json_text import MAX_SHOWN
from spark_bull.spark.platform.query_start import start_query
from spark_bull.spark.platform.spark_errors import first_line, python_trace
from spark_bull.spark.process.error_columns import ERROR_SCHEMA, error_columns
from spark_bull.spark.process.settle.columns import OUTCOMES, SETTLED_COLUMNS
from spark_bull.spark.process.settle.plan import plan_settle
from spark_bull.spark.process.settle.sink import COUNTS, Settling
from spark_bull.spark.process.settle.tokens import read_settle_token
from spark_bull.spark.process.udf_errors import sendable_errors
from spark_bull.spark.process.udf_transform import INPUT, OUTPUT, UdfTransformation
from spark_bull.spark.provider import register
from spark_bull.worker.claims.job_signal import retry_until_connected
from spark_bull.worker.job.bisection import Abandoned, run_bisected
from spark_bull.worker.job.outcome_policy import BackoffStrategy

log = logging.getLogger("spark_bull")

T = TypeVar("T")
#: What makes outcomes of claimed jobs; a UDF does so in the Python process that settles them.
Transformation = Callable[[DataFrame], DataFrame] | UdfTransformation

#: Interval at which stop() checks for the end of the current batch.
_POLL_S: Final = 0.2
#: Maximum time to wait for StreamingQuery.stop(); a transformation may block the driver.
STOP_TIMEOUT_S: Final = 30.0
#: The same if jobs get less time to finish.
MIN_STOP_S: Final = 5.0
_PARSED: Final = "__payload"
_CORRUPT: Final = "__corrupt"


@dataclass(frozen=True)
class StreamPlan:
    """The configuration of a query. claim, settle: options of the read and the write, including the connection.

    lock_ms: duration of the jobs' locks. strategy: computes backoff of types that are not built in. checkpoint: the
    user's checkpoint folder; None: a temporary one.
    """

    handle: QueueHandle
    reader: str
    claim: Mapping[str, str]
    settle: Mapping[str, str]
    transform: Transformation
    payload: StructType | None
    lock_ms: int
    strategy: BackoffStrategy | None = None
    checkpoint: str | None = None
    available_now: bool = False


class _Claimed(NamedTuple):
    """A job of a batch, and its column `token`."""

    id: str
    token: str


class StreamEngine:
    """Runs a streaming query that claims, transforms and settles jobs. A bad row fails alone, not with its batch."""

    def __init__(self, spark: SparkSession, plan: StreamPlan) -> None:
        self._spark = spark
        self._plan = plan
        self._query: StreamingQuery | None = None
        self._folder: TemporaryDirectory[str] | None = None
        self._ledger = ClaimLedger(plan.handle, plan.reader)
        self._stopping = Event()
        self._ended = Event()
        self.error: BaseException | None = None

    def start(self) -> None:
        register(self._spark)
        checkpoint = self._plan.checkpoint
        if checkpoint is None:
            self._folder = TemporaryDirectory(prefix="spark-bull-", ignore_cleanup_errors=True)
            checkpoint = str(Path(self._folder.name) / "checkpoint")
        jobs = self._spark.readStream.format("bull").options(**self._plan.claim, mode="claim").load()
        writer = jobs.writeStream.foreachBatch(self._process).option("checkpointLocation", checkpoint)
        if self._plan.available_now:
            writer = writer.trigger(availableNow=True)
        writer = writer.queryName(f"spark_bull-{self._plan.reader}")

        def start() -> StreamingQuery:
            # For stop(), if a signal interrupts the wait for its sources.
            self._query = writer.start()
            return self._query

        self._query = start_query(start)
        Thread(target=self._watch, args=[self._query], name="spark-bull-query", daemon=True).start()

    @property
    def running(self) -> bool:
        return self._query is not None and self._query.isActive

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until the query ends, at most `timeout_s`; returns whether it has."""
        return self._query is None or self._ended.wait(timeout_s)

    def _watch(self, query: StreamingQuery) -> None:
        """Waits for the end of the query, in a thread: a signal in a call to the JVM breaks its connection."""
        try:
            query.awaitTermination()
        except Exception as error:
            if not self._stopping.is_set():
                self.error = WorkerFailed(
                    f"the streaming query of worker {self._plan.reader} failed: {str(error).splitlines()[0]}"
                )
                self.error.__cause__ = error
        self._ended.set()

    def stop(self, grace_s: float) -> bool:
        """Waits up to `grace_s` for the current batch, then stops the query. Returns whether the batch finished."""
        if self._query is None or not self._query.isActive:
            return True
        finished = self._wait_for_batch(grace_s)
        self._stopping.set()
        stopping = Thread(target=self._stop_query, name=f"spark-bull-{self._plan.reader}", daemon=True)
        stopping.start()
        timeout_s = min(STOP_TIMEOUT_S, max(grace_s, MIN_STOP_S))
        stopping.join(timeout_s)
        if stopping.is_alive():
            log.warning("worker %s: its query did not stop within %g s and keeps running", self._plan.reader, timeout_s)
        try:
            self._return_unsettled()
        except (Abandoned, ConnectionLost) as error:
            log.warning(
                "worker %s: could not return its unsettled jobs, they are rescued after their locks expire: %s",
                self._plan.reader,
                error,
            )
        return finished

    def _stop_query(self) -> None:
        try:
            if self._query is not None:
                self._query.stop()
        except Exception as error:  # For example because the session was stopped.
            log.warning("worker %s: could not stop its query: %s", self._plan.reader, first_line(error))

    def _return_unsettled(self) -> None:
        """Returns claimed jobs without an outcome to the queue: those of the interrupted batch and those claimed ahead.

        Jobs claimed ahead have not started an attempt. A query that continues from the checkpoint leaves all of them
        out: they are claimed again.
        """
        begun, end = self._ledger.begun(), self._ledger.end()
        returned: dict[str, set[str]] = {}
        for start, stop, has_begun in ((begun, end, False), (0, begun, True)):
            for token, ids in reversed(self._ledger.claims(start, stop)):
                locked = self._locked(token, ids)
                returned.setdefault(token, set()).update(locked)
                for part in parts_to_return(locked, CHUNK_SIZE):
                    outcomes = Outcomes(token)
                    (outcomes.returned if has_begun else outcomes.unstarted).extend(part)
                    self._settle_directly(outcomes)
        if self._plan.checkpoint is not None:
            self._ledger.forget(returned)

    def _settle_directly(self, outcomes: Outcomes) -> None:
        work(self._plan.handle, ClaimSettings(f"stop:{self._plan.reader}"), outcomes, 0)

    def totals(self) -> dict[str, int]:
        """Returns the counters of the worker. Raises ConnectionLost."""
        handle, reader = self._plan.handle, self._plan.reader
        raw = handle.connection.call("HGETALL", handle.keys.settled(reader))
        settled = {name.decode(): int(value) for name, value in raw.items()}
        counted = {name: settled.get(name, 0) for name in ("completed", "failed", "retried", "returned", "lost")}
        claimed = self._ledger.end()
        return counted | {
            "claimed": claimed,
            "restarts": 0,
            "slots": int(self.running),
            "busy": int(self._is_busy()),
        }

    def _is_busy(self) -> bool:
        return self.running and bool(self._query and self._query.status["isTriggerActive"])

    def _wait_for_batch(self, grace_s: float) -> bool:
        """Waits until no batch is running. A query has no way to stop claiming, so another batch may start."""
        remaining = grace_s
        while remaining > 0 and self._is_busy():
            self.wait(_POLL_S)
            remaining -= _POLL_S
        return not self._is_busy()

    def _process(self, batch: DataFrame, _number: int) -> None:
        """Processes a micro-batch. If it fails, the unsettled jobs are bisected until those that fail are alone."""
        observed, failed = Observation(), False
        try:
            settled = self._settle(batch.observe(observed, f.count(f.lit(1)).alias("jobs")))
            if not settled["lost"] and settled.total() == observed.get["jobs"]:
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
        errors = {job: e for job, e in zip(pending, results, strict=True) if isinstance(e, BaseException)}
        self._fail(batch, {job: errors[job] for job in self._pending(list(errors))})

    def _settle_these(self, batch: DataFrame, claimed: Sequence[_Claimed]) -> Sequence[None]:
        """Settles these jobs of a batch, except those that an earlier, failed attempt has settled."""
        self._check_running()
        pending = self._pending(claimed)
        try:
            if pending:
                self._settle(self._only(batch, pending))
        except BaseException:
            self._check_running()
            raise
        return [None] * len(claimed)

    def _only(self, batch: DataFrame, jobs: Sequence[_Claimed]) -> DataFrame:
        """The rows of these jobs. A join: each literal of a condition is an object of the JVM."""
        only = self._spark.createDataFrame(jobs, "only_id STRING, only_token STRING")
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
            payload = f.col(_PARSED).dropFields(_CORRUPT)
            jobs = self._parsed(jobs).where(_is_valid()).withColumn("data", payload).drop(_PARSED)
        if isinstance(self._plan.transform, UdfTransformation):
            return self._write(jobs.select(*INPUT), self._plan.transform)
        with sendable_errors():
            result = self._plan.transform(jobs)
        self._check(result)
        return self._write(result.select(*[name for name in SETTLED_COLUMNS if name in result.columns]))

    def _parsed(self, jobs: DataFrame) -> DataFrame:
        schema = StructType([*(self._plan.payload or StructType()), StructField(_CORRUPT, StringType())])
        return jobs.withColumn(_PARSED, f.from_json("data", schema, {"columnNameOfCorruptRecord": _CORRUPT}))

    def _fail_invalid(self, jobs: DataFrame) -> None:
        """Fails jobs with a deferred failure, and jobs whose payload does not match the schema."""
        outcome = ("queue", "id", "token", "error", "unrecoverable")
        deferred = jobs.where(f.col("deferredFailure").isNotNull())
        self._write(
            deferred.withColumn("error", f.col("deferredFailure"))
            .withColumn("unrecoverable", f.lit(True))
            .select(*outcome)
        )
        if self._plan.payload is not None:
            why = f.concat(
                f.lit(f"expected the payload to be JSON that matches {self._plan.payload.simpleString()}, got: "),
                f.coalesce(f.substring("data", 1, MAX_SHOWN), f.lit("nothing")),
            )
            invalid = self._parsed(jobs.where(f.col("deferredFailure").isNull())).where(~_is_valid())
            self._write(invalid.withColumn("error", why).withColumn("unrecoverable", f.lit(False)).select(*outcome))

    def _check(self, result: object) -> None:
        if not isinstance(result, DataFrame):
            raise SparkBullError(f"expected the transformation to return a DataFrame, got: {type(result).__name__}")
        missing = {"id", "token"} - set(result.columns)
        if missing or not set(OUTCOMES) & set(result.columns):
            raise SparkBullError(
                "expected the transformation to return the columns id, token and returnvalue or error, got: "
                + ", ".join(result.columns)
            )

    def _write(self, rows: DataFrame, udf: UdfTransformation | None = None) -> Counter[str]:
        """Settles without the sink mode=settle, whose planning and commit take longer than a small batch.

        rows: outcomes, or what `udf` makes them of.
        """
        options, strategy = {**self._plan.settle, "mode": "settle"}, self._plan.strategy
        schema = rows.schema if udf is None else OUTPUT
        plan = replace(self._retry(lambda: plan_settle(options, schema, strategy)), patient=True)
        counts = Counter[str]()
        for row in rows.mapInArrow(Settling(plan, udf), COUNTS).collect():
            counts[row.outcome] += row.jobs
        return counts

    def _pending(self, claimed: Sequence[_Claimed]) -> list[_Claimed]:
        """The unsettled jobs: those whose lock is still that of their claim."""
        by_token: dict[str, list[_Claimed]] = {}
        for job in claimed:
            by_token.setdefault(read_settle_token(job.token).lock_token, []).append(job)
        locked = {token: {*self._locked(token, [job.id for job in jobs])} for token, jobs in by_token.items()}
        return [job for token, jobs in by_token.items() for job in jobs if job.id in locked[token]]

    def _locked(self, token: str, job_ids: Sequence[str]) -> list[str]:
        """Extends the locks of these jobs; returns the ids of those whose lock holds the token."""
        handle, lock_ms = self._plan.handle, self._plan.lock_ms
        gone = set(self._retry(lambda: extend(handle, token, job_ids, lock_ms)))
        return [job_id for job_id in job_ids if job_id not in gone]

    def _retry(self, call: Callable[[], T]) -> T:
        """Retries a call while Redis is unreachable. Raises Abandoned if the worker is stopped meanwhile."""

        def pause(seconds: float) -> None:
            self._stopping.wait(seconds)
            self._check_running()

        return retry_until_connected(call, partial(log.warning, "worker %s: %s (%s)", self._plan.reader), pause=pause)

    def _fail(self, batch: DataFrame, errors: Mapping[_Claimed, BaseException]) -> None:
        """Fails jobs of a batch, each with its own error."""
        if not errors:
            return
        schema = StructType([StructField("id", StringType()), StructField("token", StringType()), *ERROR_SCHEMA])
        rows = [
            tuple({**job._asdict(), **_columns_of(error)}.get(name) for name in schema.names)
            for job, error in errors.items()
        ]
        named = self._spark.createDataFrame(rows, schema)
        self._write(batch.select("queue", "id", "token").join(f.broadcast(named), ["id", "token"]))


def _claimed_in(batch: DataFrame) -> list[_Claimed]:
    return [_Claimed(row.id, row.token) for row in batch.select("id", "token").collect()]


def _columns_of(error: BaseException) -> dict[str, Any]:
    """Returns the columns that settle a job for which Spark or a UDF has raised an error."""
    stack = python_trace(error) or trace_of(error)
    raised = control_error(stack)
    return error_columns(raised or error, "" if raised else first_line(error), stack)


def _is_valid() -> Column:
    """Whether the payload matches the schema."""
    return f.coalesce(f.col(_PARSED).isNotNull() & f.col(f"{_PARSED}.{_CORRUPT}").isNull(), f.lit(False))
