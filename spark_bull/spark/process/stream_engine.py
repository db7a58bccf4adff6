"""The engine `stream`: micro-batches of claimed jobs go through a DataFrame transformation and are settled."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
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

from spark_bull.errors import ConnectionLost, SparkBullError, WorkerFailed, control_error
from spark_bull.outcomes import Outcomes
from spark_bull.queue.claim import ClaimSettings, extend, work
from spark_bull.queue.claim_ledger import ClaimLedger
from spark_bull.queue.handle import CHUNK_SIZE, QueueHandle
from spark_bull.spark.process.error_columns import ERROR_SCHEMA, error_columns
from spark_bull.spark.process.payload import SHOWN
from spark_bull.spark.process.settle import COUNTS, OUTCOMES, SETTLED_COLUMNS, Settling, plan_settle
from spark_bull.spark.process.tickets import read_ticket
from spark_bull.spark.process.udf_errors import sendable_errors
from spark_bull.spark.provider import register
from spark_bull.spark.query_start import start_query
from spark_bull.spark.spark_errors import first_line, python_trace
from spark_bull.worker.bisection import Abandoned, run_bisected
from spark_bull.worker.error_text import trace_of
from spark_bull.worker.job_runner import BackoffStrategy
from spark_bull.worker.job_signal import retry_until_connected

log = logging.getLogger("spark_bull")

T = TypeVar("T")
Transformation = Callable[[DataFrame], DataFrame]

#: How often a query that is to end is looked at.
_LOOK_S: Final = 0.2
#: How long Spark is given to end what a batch was about when it is cut off; a transformation may block the driver.
CUT_OFF_S: Final = 30.0
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


class _Claimed(NamedTuple):
    """Jobs of one batch, all of which were claimed at `position` of the ledger or after."""

    ids: list[str]
    position: int

    def only(self, ids: Sequence[str]) -> _Claimed:
        return _Claimed(list(ids), self.position)


class StreamEngine:
    """A streaming query that claims, transforms and settles. One bad row doesn't take its batch down."""

    def __init__(self, spark: SparkSession, plan: StreamPlan) -> None:
        self._spark = spark
        self._plan = plan
        self._query: StreamingQuery | None = None
        self._folder: TemporaryDirectory[str] | None = None
        self._ledger = ClaimLedger(plan.handle, plan.reader)
        self._stopping = Event()
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
            if self._stopping.is_set():
                return True
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
        self._stopping.set()
        cutting_off = Thread(target=self._cut_off, name=f"spark-bull-{self._plan.reader}", daemon=True)
        cutting_off.start()
        cutting_off.join(CUT_OFF_S)
        if cutting_off.is_alive():
            log.warning("worker %s: its last batch has not ended and is left to itself", self._plan.reader)
        if self._plan.checkpoint is None:
            try:
                self._give_back()
            except (Abandoned, ConnectionLost) as error:
                log.warning("worker %s: its jobs come back when their locks end: %s", self._plan.reader, error)
        return finished

    def _cut_off(self) -> None:
        try:
            if self._query is not None:
                self._query.stop()
        except Exception as error:  # Such as that the session was stopped meanwhile.
            log.warning("worker %s: its query could not be stopped: %s", self._plan.reader, first_line(error))

    def _give_back(self) -> None:
        """Jobs that were claimed and not settled go back; with a checkpoint of the user's they are taken up again.

        Those of the batch that was cut off have started, those claimed ahead have not.
        """
        begun, end = self._ledger.begun(), self._ledger.end()
        ahead = dict.fromkeys(self._held(self._ledger.ids(begun, end)))
        held = dict.fromkeys(self._held(self._ledger.ids(0, begun)))
        for some in _chunks(list(ahead)):
            self._settle_directly(Outcomes(self._plan.reader, unstarted=some))
        for some in _chunks([job_id for job_id in held if job_id not in ahead]):
            self._settle_directly(Outcomes(self._plan.reader, returned=some))

    def _settle_directly(self, outcomes: Outcomes) -> None:
        work(self._plan.handle, ClaimSettings(f"stop:{self._plan.reader}"), outcomes, 0)

    def totals(self) -> dict[str, int]:
        """What has been done so far. Raises ConnectionLost."""
        handle, reader = self._plan.handle, self._plan.reader
        raw = handle.connection.call("HGETALL", handle.keys.settled(reader))
        told = {name.decode(): int(value) for name, value in raw.items()}
        counted = {name: told.get(name, 0) for name in ("completed", "failed", "retried", "returned", "lost")}
        claimed = self._ledger.end()
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
        seen, failed = Observation(), False
        try:
            settled = self._settle(batch.observe(seen, f.count(f.lit(1)).alias("jobs")))
            if not settled["lost"] and settled.total() == seen.get["jobs"]:
                return
        except BaseException as error:
            self._check_running()
            if isinstance(error, SparkBullError) and not isinstance(error, ConnectionLost):
                raise
            log.warning(
                "worker %s: a batch has failed, trying its jobs in parts: %s", self._plan.reader, first_line(error)
            )
            failed = True
        claimed = _claimed_in(batch)
        if failed:
            self._settle_in_parts(batch, claimed)
        left = self._pending(claimed)
        if left:
            self._fail_unfit(batch.where(f.col("id").isin(left)))
            unanswered = LookupError("expected the transformation to return a row for this job, it returned none")
            self._fail(batch, dict.fromkeys(self._pending(claimed), unanswered))

    def _settle_in_parts(self, batch: DataFrame, claimed: _Claimed) -> None:
        pending = self._pending(claimed)
        made = run_bisected(pending, lambda ids: self._settle_these(batch, claimed.only(ids)))
        errors = {job_id: e for job_id, e in zip(pending, made, strict=True) if isinstance(e, BaseException)}
        left = self._pending(claimed.only(list(errors)))
        self._fail(batch, {job_id: errors[job_id] for job_id in left})

    def _settle_these(self, batch: DataFrame, claimed: _Claimed) -> Sequence[None]:
        """What of these was settled while others of them failed is left out."""
        self._check_running()
        pending = self._pending(claimed)
        try:
            if pending:
                self._settle(batch.where(f.col("id").isin(pending)))
        except BaseException:
            self._check_running()
            raise
        return [None] * len(claimed.ids)

    def _check_running(self) -> None:
        """Raises Abandoned once the worker is being stopped: Spark cancels then what it runs, which fails no job."""
        if self._stopping.is_set():
            raise Abandoned(f"worker {self._plan.reader} is being stopped")

    def _settle(self, batch: DataFrame) -> Counter[str]:
        """Settles what the transformation makes of the jobs that can be processed; returns how many of them how."""
        jobs = batch.where(f.col("deferredFailure").isNull())
        if self._plan.payload is not None:
            payload = f.col(_PARSED).dropFields(_CORRUPT)
            jobs = self._parsed(jobs).where(_fits()).withColumn("data", payload).drop(_PARSED)
        with sendable_errors():
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
        options, strategy = {**self._plan.settle, "mode": "settle"}, self._plan.strategy
        plan = replace(self._ask(lambda: plan_settle(options, outcomes.schema, strategy)), patient=True)
        counts = Counter[str]()
        for row in outcomes.mapInArrow(Settling(plan), COUNTS).collect():
            counts[row.outcome] += row.jobs
        return counts

    def _pending(self, claimed: _Claimed) -> list[str]:
        """Ids of those that nobody has settled: their lock is ours, and not because they were claimed again since."""
        if not claimed.ids:
            return []
        held = self._held(claimed.ids)
        times = Counter(self._ask(lambda: self._ledger.ids(claimed.position, self._ledger.end())))
        return [job_id for job_id in held if times[job_id] <= 1]

    def _held(self, job_ids: Sequence[str]) -> list[str]:
        """Those of these jobs whose lock is ours."""
        handle, reader, lock_ms = self._plan.handle, self._plan.reader, self._plan.lock_ms
        gone = set(self._ask(lambda: extend(handle, reader, job_ids, lock_ms)))
        return [job_id for job_id in job_ids if job_id not in gone]

    def _ask(self, ask: Callable[[], T]) -> T:
        """What a call to Redis returns. Raises Abandoned when the worker is stopped while Redis is away."""

        def pause(seconds: float) -> None:
            self._stopping.wait(seconds)
            self._check_running()

        return retry_until_connected(ask, partial(log.warning, "worker %s: %s (%s)", self._plan.reader), pause=pause)

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


def _claimed_in(batch: DataFrame) -> _Claimed:
    rows = batch.select("id", "token").collect()
    return _Claimed([row.id for row in rows], min((read_ticket(row.token).position for row in rows), default=0))


def _chunks(ids: Sequence[str]) -> Iterator[list[str]]:
    for start in range(0, len(ids), CHUNK_SIZE):
        yield list(ids[start : start + CHUNK_SIZE])


def _columns_of(error: BaseException) -> dict[str, Any]:
    """What is to be settled for a job over which Spark, or a UDF within it, has raised an error."""
    stack = python_trace(error) or trace_of(error)
    raised = control_error(stack)
    return error_columns(raised or error, "" if raised else first_line(error), stack)


def _fits() -> Column:
    """Whether a payload was parsed."""
    return f.coalesce(f.col(_PARSED).isNotNull() & f.col(f"{_PARSED}.{_CORRUPT}").isNull(), f.lit(False))
