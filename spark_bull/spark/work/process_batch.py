"""process_batch: processes a micro-batch of claimed jobs in a query of the user's own."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Final, NamedTuple, TypeVar

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from spark_bull.core.error_text import trace_of
from spark_bull.core.errors import DialectError, OptionError, SparkBullError, control_error
from spark_bull.core.options.parse import as_texts
from spark_bull.core.queue.handle.handle import CHUNK_SIZE, QueueHandle
from spark_bull.run.claims.waits import retry_until_connected
from spark_bull.run.job.interrupts import in_this_process
from spark_bull.run.job.job_runner import Abandoned, run_bisected
from spark_bull.run.job.outcome_policy import BackoffStrategy
from spark_bull.run.slot.slot_report import FailureLog
from spark_bull.spark.platform.jvm import is_query_running
from spark_bull.spark.platform.spark_errors import first_line, python_trace, sendable_errors
from spark_bull.spark.schemas import table_of
from spark_bull.spark.work.claim_batch import read_settle_token
from spark_bull.spark.work.frame_runner import ERROR_SCHEMA, error_columns, invalid_payloads, parsed_payloads
from spark_bull.spark.work.settle.plan import SETTLED_COLUMNS, SettlePlan, plan_settle
from spark_bull.spark.work.settle.rows import checked_frame
from spark_bull.spark.work.settle.sink import SETTLED, Settling, failures_of
from spark_bull.spark.work.udf_runner import frame_schema

log = logging.getLogger("spark_bull")

T = TypeVar("T")

_ERRORS: Final = StructType([*table_of("id string, token string"), *ERROR_SCHEMA])
_failures: Final = FailureLog("process_batch")
#: By these words in an error, Spark sees that it has stopped the query itself. Its regular expression overflows the
#: stack when kBs of text follow, as a trace of the JVM does.
_STOPPED: Final = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling process_batch: java.lang.InterruptedException"
)


def process_batch(
    batch: DataFrame,
    processor: Callable[[DataFrame], DataFrame],
    *,
    queue: str,
    payload_schema: StructType | str | None = None,
    backoff_strategy: BackoffStrategy | None = None,
    options: Mapping[str, Any] | None = None,
) -> None:
    """Processes a micro-batch of claimed jobs and settles each of them; a job that fails does not affect the others.

        jobs = spark.readStream.format("bull").options(mode="claim", queue="orders").load()
        query = jobs.writeStream.foreachBatch(lambda batch, _: process_batch(batch, enrich, queue="orders"))
        query.option("checkpointLocation", "/lake/orders/_checkpoint").start()

    If the processor raises an exception, or a task of its query does, the batch is tried in halves until the jobs that
    fail are alone. A batch that Spark repeats settles only what is not settled yet.

    Parameters:
      batch: claimed jobs, with all columns of `mode=claim`.
      processor: a function of these jobs that returns `id`, `token`, and `returnvalue` or `error`, as mode=settle takes
        them. A job without a row fails.
      queue: name of the queue.
      payload_schema: schema that `data` is parsed with, such as "sku STRING, amount INT"; None: `data` is JSON text.
      backoff_strategy: f(attempts made, type, error, job) -> ms, for types of backoff that are not built in.
      options: other options of `mode=settle`, such as `url` and `removeOnComplete`, by their names in Spark.

    Raises:
      OptionError: for an invalid option, or a processor that does not return the columns of mode=settle.
      DialectError: for what the dialect of the queue does not support.
      SparkBullError: if the query is stopped meanwhile; the jobs that are not settled keep their locks. Not with Spark
        Connect, nor in a thread of one's own, which do not know the query: errors of the stop may fail jobs there.
    """
    given = as_texts({**(options or {}), "queue": queue, "mode": "settle"})
    processing = _Processing(batch, processor, frame_schema(payload_schema), given, backoff_strategy)
    try:
        processing.run()
    except Abandoned as error:
        raise SparkBullError(f"{error} ({_STOPPED})") from None


class _JobToken(NamedTuple):
    """A job of a batch, and its column `token`."""

    id: str
    token: str


@dataclass(frozen=True)
class _Processing:
    """The processing of a batch. options: of mode=settle. strategy: computes backoff of types that are not built in."""

    batch: DataFrame
    processor: Callable[[DataFrame], DataFrame]
    payload: StructType | None
    options: Mapping[str, str]
    strategy: BackoffStrategy | None

    def run(self) -> None:
        """Settles all jobs. If that fails, those that are not settled are bisected until those that fail are alone."""
        observed, failed = Observation(), False
        try:
            settled = self._settle(self.batch.observe(observed, f.count(f.lit(1)).alias("jobs")))
            # PySpark 4.0 waits forever for an observation that the optimizer has removed, as no row is left.
            if settled.total() and not settled["lost"] and settled.total() == observed.get["jobs"]:
                return
        except BaseException as error:
            self._check_running()
            if isinstance(error, (OptionError, DialectError)):
                raise
            log.warning("a batch of claimed jobs failed, retrying its jobs in parts: %s", first_line(error))
            failed = True
        claimed = [_JobToken(row.id, row.token) for row in self.batch.select("id", "token").collect()]
        if failed:
            self._settle_in_parts(claimed)
        pending = self._pending(claimed)
        if pending:
            self._fail_invalid(self._only(pending))
            missing = LookupError("expected the processor to return a row for this job, got none")
            self._fail(dict.fromkeys(self._pending(claimed), missing))

    def _settle_in_parts(self, claimed: Sequence[_JobToken]) -> None:
        results = run_bisected(self._pending(claimed), self._settle_these)
        errors = {jobs[0]: error for jobs, error in results if isinstance(error, BaseException)}
        self._fail({job: errors[job] for job in self._pending(list(errors))})

    def _settle_these(self, claimed: Sequence[_JobToken]) -> None:
        """Settles these jobs, except those that an earlier, failed attempt has settled."""
        self._check_running()
        pending = self._pending(claimed)
        try:
            if pending:
                self._settle(self._only(pending))
        except BaseException:
            self._check_running()
            raise

    def _only(self, jobs: Sequence[_JobToken]) -> DataFrame:
        """The rows of these jobs. A join: each literal of a condition is an object of the JVM."""
        only = self.batch.sparkSession.createDataFrame(jobs, "only_id STRING, only_token STRING")
        is_one = (f.col("id") == f.col("only_id")) & (f.col("token") == f.col("only_token"))
        return self.batch.join(f.broadcast(only), is_one, "left_semi")

    def _check_running(self) -> None:
        """Raises Abandoned if the query was stopped: errors of cancelled Spark jobs must not fail jobs."""
        if not is_query_running(self.batch.sparkSession):
            raise Abandoned("the query was stopped while it processed a batch: its jobs return when their locks expire")

    def _settle(self, batch: DataFrame) -> Counter[str]:
        """Processes and settles the jobs that can be processed; returns the number of jobs by outcome."""
        jobs = batch.where(f.col("deferredFailure").isNull())
        if self.payload is not None:
            jobs = parsed_payloads(jobs, self.payload)
        with sendable_errors():
            result = checked_frame(in_this_process(self.processor, jobs))
        return self._write(result.select(*[name for name in SETTLED_COLUMNS if name in result.columns]))

    def _fail_invalid(self, jobs: DataFrame) -> None:
        """Fails jobs with a deferred failure, and jobs whose payload does not match the schema."""
        deferred = jobs.where(f.col("deferredFailure").isNotNull())
        failed = deferred.withColumn("error", f.col("deferredFailure")).withColumn("unrecoverable", f.lit(True))
        self._write(failed.select("id", "token", "error", "unrecoverable"))
        if self.payload is not None:
            self._write(invalid_payloads(jobs.where(f.col("deferredFailure").isNull()), self.payload))

    def _write(self, rows: DataFrame) -> Counter[str]:
        """Settles without the sink mode=settle, whose planning and commit take longer than a small batch."""
        counts = Counter[str]()
        for row in rows.mapInArrow(Settling(self._plan(rows.schema)), SETTLED).collect():
            counts.update(row.counts)
            for one in failures_of(row):
                _failures.log(one)
        return counts

    def _plan(self, schema: StructType) -> SettlePlan:
        return replace(self._retry(lambda: plan_settle(self.options, schema, self.strategy)), patient=True)

    @cached_property
    def _handle(self) -> QueueHandle:
        (handle,) = self._plan(_ERRORS).handles().values()
        return handle

    def _pending(self, claimed: Sequence[_JobToken]) -> list[_JobToken]:
        """The unsettled jobs: their locks are still the ones of their claim."""
        return [
            job
            for start in range(0, len(claimed), CHUNK_SIZE)
            for job in self._retry(partial(_locked, self._handle, claimed[start : start + CHUNK_SIZE]))
        ]

    def _retry(self, call: Callable[[], T]) -> T:
        """Retries a call while Redis is unreachable, or the queue is damaged. Raises Abandoned if the query stops."""

        def pause(seconds: float) -> None:
            time.sleep(seconds)
            self._check_running()

        warn = partial(log.warning, "process_batch: %s (%s)")
        return retry_until_connected(call, warn, pause=pause, until_repaired=True)

    def _fail(self, errors: Mapping[_JobToken, BaseException]) -> None:
        """Fails jobs of the batch, each with its own error."""
        if not errors:
            return
        rows = [
            tuple({**job._asdict(), **_columns_of(error)}.get(name) for name in _ERRORS.names)
            for job, error in errors.items()
        ]
        self._write(self.batch.sparkSession.createDataFrame(rows, _ERRORS))


def _locked(handle: QueueHandle, jobs: Sequence[_JobToken]) -> list[_JobToken]:
    """The jobs whose locks still hold the token of their claim. Raises ConnectionLost."""
    tokens = handle.connection.pipeline([("GET", handle.keys.lock(job.id)) for job in jobs])
    return [
        job
        for job, token in zip(jobs, tokens, strict=True)
        if token is not None and token.decode() == read_settle_token(job.token).lock_token
    ]


def _columns_of(error: BaseException) -> dict[str, Any]:
    """Returns the columns that settle a job for which Spark or a UDF has raised an error."""
    stack = python_trace(error) or trace_of(error)
    raised = control_error(stack)
    return error_columns(raised or error, "" if raised else first_line(error), stack)
