"""The engine `stream`: micro-batches of claimed jobs go through a DataFrame transformation and are settled."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StringType, StructField, StructType

from spark_bull.claim_ledger import ClaimLedger
from spark_bull.dialects.handle import CHUNK_SIZE, QueueHandle
from spark_bull.errors import SparkBullError, WorkerFailed, control_error
from spark_bull.outcomes import Outcomes
from spark_bull.runtime.bisect import outcomes_of
from spark_bull.runtime.error_text import trace_of
from spark_bull.runtime.job_runner import BackoffStrategy
from spark_bull.spark.error_columns import ERROR_SCHEMA, error_columns
from spark_bull.spark.payload import SHOWN
from spark_bull.spark.provider import register
from spark_bull.spark.query_start import start_query
from spark_bull.spark.settle import COUNTS, OUTCOMES, SETTLED_COLUMNS, Settling, plan_settle
from spark_bull.spark.spark_errors import first_line, python_trace
from spark_bull.working import Seat, extend, work

log = logging.getLogger("spark_bull")

Transformation = Callable[[DataFrame], DataFrame]

#: How often a query that is to end is looked at.
_LOOK_S: Final = 0.2
_PARSED: Final = "__payload"
_CORRUPT: Final = "__corrupt"


@dataclass(frozen=True)
class StreamPlan:
    """What a query is to do. `claim`, `settle`: options of both, connection included; `lock_ms`: how long locks last.

    strategy: for backoffs that aren't built in. checkpoint: folder that outlives the program; None: a temporary one,
    and unsettled jobs come back by their locks.
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


class StreamEngine:
    """A streaming query that claims, transforms and settles. One bad row doesn't take its batch down."""

    def __init__(self, spark: SparkSession, plan: StreamPlan) -> None:
        self._spark = spark
        self._plan = plan
        self._query: StreamingQuery | None = None
        self._folder: TemporaryDirectory[str] | None = None
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
        self._query = start_query(writer.queryName(f"spark_bull-{self._plan.reader}").start)

    @property
    def running(self) -> bool:
        return self._query is not None and self._query.isActive

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until the query ends, `timeout_s` at most; returns whether it has."""
        if self._query is None:
            return True
        try:
            ended = self._query.awaitTermination(None if timeout_s is None else timeout_s)  # type: ignore[arg-type]
        except Exception as error:
            self.error = WorkerFailed(
                f"the query of worker {self._plan.reader} has ended: {str(error).splitlines()[0]}"
            )
            self.error.__cause__ = error
            return True
        return ended is None or bool(ended)

    def stop(self, grace_s: float) -> bool:
        """Lets the micro-batch that is going on end, within `grace_s`; returns whether it did."""
        if self._query is None or not self._query.isActive:
            return True
        finished = self._settled_within(grace_s)
        self._query.stop()
        if self._plan.checkpoint is None:
            self._give_back()
        return finished

    def _give_back(self) -> None:
        """Jobs that were claimed and not settled go back; with a checkpoint of the user's they are taken up again."""
        held, handle = self._held(), self._plan.handle
        for start in range(0, len(held), CHUNK_SIZE):
            outcomes = Outcomes(self._plan.reader, unstarted=held[start : start + CHUNK_SIZE])
            work(handle, Seat(f"stop:{self._plan.reader}"), outcomes, 0)

    def totals(self) -> dict[str, int]:
        """What has been done so far. Raises ConnectionLost."""
        handle, reader = self._plan.handle, self._plan.reader
        raw = handle.connection.call("HGETALL", handle.keys.settled(reader))
        told = {name.decode(): int(value) for name, value in raw.items()}
        counted = {name: told.get(name, 0) for name in ("completed", "failed", "retried", "returned", "lost")}
        claimed = ClaimLedger(handle, reader).end()
        return counted | {
            "claimed": claimed,
            "restarts": 0,
            "slots": int(self.running),
            "busy": int(self._is_busy()),
        }

    def _is_busy(self) -> bool:
        return self.running and bool(self._query and self._query.status["isTriggerActive"])

    def _settled_within(self, grace_s: float) -> bool:
        """Waits until no batch is going on; a query can't be asked to claim no more, so another may begin."""
        from_now = grace_s
        while from_now > 0 and self._is_busy():
            self.wait(_LOOK_S)
            from_now -= _LOOK_S
        return not self._is_busy()

    def _process(self, batch: DataFrame, _number: int) -> None:
        """One micro-batch. What is settled stays settled; the rest is tried in halves, down to the jobs that fail."""
        seen = Observation()
        try:
            settled = self._settle(batch.observe(seen, f.count(f.lit(1)).alias("jobs")))
            if not settled["lost"] and settled.total() == seen.get["jobs"]:
                return
        except SparkBullError:
            raise
        except BaseException as error:
            log.warning(
                "worker %s: a batch has failed, trying its jobs in parts: %s", self._plan.reader, first_line(error)
            )
            self._settle_in_parts(batch)
        left = self._pending(batch)
        if left:
            self._fail_unfit(batch.where(f.col("id").isin(left)))
            unanswered = LookupError("expected the transformation to return a row for this job, it returned none")
            self._fail(batch, dict.fromkeys(self._pending(batch), unanswered))

    def _settle_in_parts(self, batch: DataFrame) -> None:
        pending = self._pending(batch)
        made = outcomes_of(pending, lambda ids: self._settle_these(batch, ids))
        tried = zip(pending, made, strict=True)
        self._fail(batch, {job_id: error for job_id, error in tried if isinstance(error, BaseException)})

    def _settle_these(self, batch: DataFrame, ids: Sequence[str]) -> Sequence[None]:
        self._settle(batch.where(f.col("id").isin(list(ids))))
        return [None] * len(ids)

    def _settle(self, batch: DataFrame) -> Counter[str]:
        """Settles what the transformation makes of the jobs that can be processed; returns how many of them how."""
        jobs = batch.where(f.col("deferredFailure").isNull())
        if self._plan.payload is not None:
            payload = f.col(_PARSED).dropFields(_CORRUPT)
            jobs = self._parsed(jobs).where(_fits()).withColumn("data", payload).drop(_PARSED)
        made = self._plan.transform(jobs)
        self._check(made)
        return self._write(made.select(*[name for name in SETTLED_COLUMNS if name in made.columns]))

    def _parsed(self, jobs: DataFrame) -> DataFrame:
        schema = StructType([*(self._plan.payload or StructType()), StructField(_CORRUPT, StringType())])
        return jobs.withColumn(_PARSED, f.from_json("data", schema, {"columnNameOfCorruptRecord": _CORRUPT}))

    def _fail_unfit(self, jobs: DataFrame) -> None:
        """Settles jobs that are to fail without being processed, and those whose payload doesn't fit the schema."""
        outcome = ("queue", "id", "token", "error", "unrecoverable")
        deferred = jobs.where(f.col("deferredFailure").isNotNull())
        self._write(
            deferred.withColumn("error", f.col("deferredFailure"))
            .withColumn("unrecoverable", f.lit(True))
            .select(*outcome)
        )
        if self._plan.payload is not None:
            why = f.concat(
                f.lit(f"expected the payload to be JSON that fits {self._plan.payload.simpleString()}, got: "),
                f.coalesce(f.substring("data", 1, SHOWN), f.lit("nothing")),
            )
            unfit = self._parsed(jobs.where(f.col("deferredFailure").isNull())).where(~_fits())
            self._write(unfit.withColumn("error", why).withColumn("unrecoverable", f.lit(False)).select(*outcome))

    def _check(self, made: object) -> None:
        if not isinstance(made, DataFrame):
            raise SparkBullError(f"expected the transformation to return a DataFrame, got: {type(made).__name__}")
        missing = {"id", "token"} - set(made.columns)
        if missing or not set(OUTCOMES) & set(made.columns):
            raise SparkBullError(
                "expected the transformation to return the columns id, token and returnvalue or error, got: "
                + ", ".join(made.columns)
            )

    def _write(self, outcomes: DataFrame) -> Counter[str]:
        """As the sink mode=settle does, whose planning and committing would take longer than a small batch."""
        plan = plan_settle({**self._plan.settle, "mode": "settle"}, outcomes.schema, self._plan.strategy)
        counts = Counter[str]()
        for row in outcomes.mapInArrow(Settling(plan), COUNTS).collect():
            counts[row.outcome] += row.jobs
        return counts

    def _pending(self, batch: DataFrame) -> list[str]:
        """Ids of the batch whose lock is still ours: those that nobody has settled."""
        held = self._held()
        if not held:
            return []
        in_batch = {row.id for row in batch.select("id").collect()}
        return [job_id for job_id in held if job_id in in_batch]

    def _held(self) -> list[str]:
        """Ids of the jobs claimed whose lock is ours."""
        handle, reader = self._plan.handle, self._plan.reader
        ledger = ClaimLedger(handle, reader)
        ids = ledger.ids(0, ledger.end())
        gone = set(extend(handle, reader, ids, self._plan.lock_ms))
        return [job_id for job_id in ids if job_id not in gone]

    def _fail(self, batch: DataFrame, errors: Mapping[str, BaseException]) -> None:
        """Settles these jobs of a batch as failed, each with its own error."""
        if not errors:
            return
        schema = StructType([StructField("id", StringType()), *ERROR_SCHEMA])
        rows = [
            tuple({"id": job_id, **_columns_of(error)}.get(name) for name in schema.names)
            for job_id, error in errors.items()
        ]
        named = self._spark.createDataFrame(rows, schema)
        self._write(batch.select("queue", "id", "token").join(f.broadcast(named), "id"))


def _columns_of(error: BaseException) -> dict[str, Any]:
    """What is to be settled for a job over which Spark, or a UDF within it, has raised an error."""
    stack = python_trace(error) or trace_of(error)
    raised = control_error(stack)
    return error_columns(raised or error, "" if raised else first_line(error), stack)


def _fits() -> Column:
    """Whether a payload was parsed."""
    return f.coalesce(f.col(_PARSED).isNotNull() & f.col(f"{_PARSED}.{_CORRUPT}").isNull(), f.lit(False))
