"""Runs a function of DataFrames over a chunk of jobs, as Spark jobs that the driver starts and can cancel;
and the columns of these DataFrames.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from threading import Event
from typing import Any, Final
from uuid import uuid4

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from spark_bull.core.error_text import reason_of, trace_of
from spark_bull.core.errors import (
    JobCancelled,
    JobTimeout,
    OptionError,
    PayloadUnreadable,
    UnrecoverableError,
    control_error,
)
from spark_bull.core.model.jobs import RawJson
from spark_bull.core.threads import DaemonThread
from spark_bull.run.job.interrupts import in_this_process
from spark_bull.run.job.job_options import once_only
from spark_bull.run.job.job_runner import (
    RAISE_AGAIN_S,
    Abandoned,
    JobExpired,
    Result,
    Runner,
    Texts,
    run_bisected,
    timeout_error,
)
from spark_bull.run.job.named_runner import NamedRunner
from spark_bull.run.job.outcomes import StatedOutcome, outcome_of
from spark_bull.run.job.running_job import RunningJob
from spark_bull.spark.json.json_text import MAX_SHOWN
from spark_bull.spark.platform.jvm import add_tag, cancel_tagged, remove_tag
from spark_bull.spark.platform.spark_errors import first_line, python_trace, sendable_errors
from spark_bull.spark.schemas import table_of
from spark_bull.spark.work.claim_batch import NOT_ONCE, frame_table
from spark_bull.spark.work.settle.rows import outcomes_of

_PARSED: Final = "__payload"
_CORRUPT: Final = "__corrupt"


def parsed_payloads(jobs: DataFrame, payload: StructType) -> DataFrame:
    """The jobs whose payload matches the schema, with `data` as a STRUCT."""
    data = f.col(_PARSED).dropFields(_CORRUPT)
    return _parsed(jobs, payload).where(_is_valid()).withColumn("data", data).drop(_PARSED)


def invalid_payloads(jobs: DataFrame, payload: StructType) -> DataFrame:
    """The outcomes of the other jobs, which fail; those whose payload is not JSON without a further attempt."""
    why = f.concat(
        f.lit(f"expected the payload to be JSON that matches {payload.simpleString()}, got: "),
        f.coalesce(f.substring("data", 1, MAX_SHOWN), f.lit("nothing")),
    )
    is_damaged = f.try_parse_json("data").isNull()
    invalid = _parsed(jobs, payload).where(~_is_valid()).withColumn("error", why)
    return invalid.withColumn("unrecoverable", is_damaged).select("id", "token", "error", "unrecoverable")


def _parsed(jobs: DataFrame, payload: StructType) -> DataFrame:
    schema = StructType([*payload, StructField(_CORRUPT, StringType())])
    return jobs.withColumn(_PARSED, f.from_json("data", schema, {"columnNameOfCorruptRecord": _CORRUPT}))


def _is_valid() -> Column:
    """Whether the payload matches the schema."""
    return f.coalesce(f.col(_PARSED).isNotNull() & f.col(f"{_PARSED}.{_CORRUPT}").isNull(), f.lit(False))


ERROR_SCHEMA: Final = table_of(
    "error string, stacktrace string, unrecoverable boolean, delay bigint, runAt timestamp, rateLimit bigint",
    "groupRateLimit bigint, waitForChildren boolean",
)


def error_columns(error: BaseException, reason: str = "", stack: str = "") -> dict[str, Any]:
    """Returns the columns of ERROR_SCHEMA for an error. reason, stack: texts to store; default: the error's."""
    ending = outcome_of(error)
    if ending.kind == "returned":
        return {"rateLimit": ending.ms}
    if ending.kind == "rested":
        return {"groupRateLimit": ending.ms}
    if ending.kind == "delayed by":
        return {"delay": ending.ms}
    if ending.kind == "delayed until":
        return {"runAt": datetime.fromtimestamp(ending.ms / 1000, timezone.utc)}
    if ending.kind == "waiting for children":
        return {"waitForChildren": True}
    error = ending.error or error
    return {
        "error": reason or reason_of(error),
        "stacktrace": stack or trace_of(error),
        "unrecoverable": ending.kind == "failed for good",
    }


Transformation = Callable[[DataFrame], DataFrame]
#: What has become of a job: an ending, or the JSON text of its result.
Output = StatedOutcome | str

_MISSING: Final = "expected the transformation to return a row for this job, got none"


class WrongFrame(Abandoned):
    """A transformation has returned what settles no job: no job is to blame, so the worker fails."""


@dataclass(eq=False)
class _Call:
    """A call of the function. tag: of its Spark jobs. is_late: whether it has exceeded its time."""

    jobs: Sequence[RunningJob]
    tag: str = field(default_factory=lambda: f"spark_bull-{uuid4().hex}")
    over: Event = field(default_factory=Event)
    is_late: bool = False


class FrameRunner(Runner):
    """Calls a function with the jobs of a chunk as a DataFrame, and with halves of it when that fails.

    payload: the schema that `data` is parsed with; None: it is JSON text. timeout_ms: per call; 0: none. The slots of a
    worker share a runner.
    """

    one_by_one = False
    may_end_process = False

    def __init__(
        self, spark: SparkSession, transform: Transformation, payload: StructType | None, timeout_ms: int
    ) -> None:
        self._spark = spark
        self._transform = transform
        self._payload = payload
        self._timeout_ms = timeout_ms
        self._calls: set[_Call] = set()

    def __call__(self, jobs: Sequence[RunningJob], lost: Collection[str]) -> Iterator[Sequence[Result]]:
        held = [job for job in jobs if job.claimed.id not in lost]
        once = once_only([job.claimed for job in held])
        refused = {job: error for job in held if (error := _refusal_of(job, once)) is not None}
        yield [Result(job, None, error) for job, error in refused.items()]
        for part, outputs in run_bisected([job for job in held if job not in refused], partial(self._run, lost)):
            each = [outputs] if isinstance(outputs, BaseException) else outputs
            texts = [output for output in each if isinstance(output, str)]
            if len(texts) == len(part) and not lost and not any(job.follow_ups for job in part):
                yield Texts(part, texts)
            else:
                pairs = zip(part, each, strict=True)
                yield [_result(job, output) for job, output in pairs if job.claimed.id not in lost]

    def interrupt(self, job: RunningJob) -> None:
        """Cancels the Spark jobs of the call that has this job; may be called in any thread."""
        for call in list(self._calls):
            if any(running is job for running in call.jobs):
                cancel_tagged(self._spark, call.tag)

    def _run(self, lost: Collection[str], jobs: Sequence[RunningJob]) -> list[Output]:
        """The outcome of each job. Raises what the function or Spark raises, and Abandoned if no job is to blame."""
        for job in jobs:
            if job.cancellation is not None:
                raise job.cancellation
        call = _Call(jobs)
        try:
            with self._tagged(call):
                return self._outputs(jobs)
        except Abandoned:
            raise
        except BaseException as error:
            if all(job.claimed.id in lost for job in jobs):
                # They are not settled.
                return [StatedOutcome("failed", first_line(error))] * len(jobs)
            if call.is_late:
                raise timeout_error(self._timeout_ms) from None
            self.check_spark()
            raise

    def check_spark(self) -> None:
        """Raises Abandoned if Spark runs no job, as the session has ended."""
        try:
            self._spark.range(1).count()
        except BaseException as error:
            raise Abandoned(f"Spark runs no jobs: {first_line(error)}") from error

    def _outputs(self, jobs: Sequence[RunningJob]) -> list[Output]:
        frame = self._frame(jobs)
        with sendable_errors():
            given = frame if self._payload is None else parsed_payloads(frame, self._payload)
            result = in_this_process(self._transform, given)
        outputs = self._settled(jobs, result)
        missing = [job for job in jobs if job.claimed.id not in outputs]
        if missing and self._payload is not None:
            outputs |= self._settled(missing, invalid_payloads(self._frame(missing), self._payload))
        return [outputs.get(job.claimed.id) or StatedOutcome("failed", _MISSING) for job in jobs]

    def _frame(self, jobs: Sequence[RunningJob]) -> DataFrame:
        return self._spark.createDataFrame(frame_table(jobs))

    def _settled(self, jobs: Sequence[RunningJob], result: object) -> dict[str, Output]:
        """What a transformation has made of these jobs, by their ids. Raises WrongFrame."""
        try:
            return outcomes_of(jobs, result)
        except OptionError as error:
            raise WrongFrame(str(error)) from error

    @contextmanager
    def _tagged(self, call: _Call) -> Iterator[None]:
        """Lets the Spark jobs of this thread be cancelled in the block, and cancels them when their time is over."""
        self._calls.add(call)
        add_tag(self._spark, call.tag)
        if self._timeout_ms:
            DaemonThread("timeouts", partial(self._limit, call)).start()
        try:
            yield
        finally:
            call.over.set()
            self._calls.discard(call)
            remove_tag(self._spark, call.tag)

    def _limit(self, call: _Call) -> None:
        wait_s = self._timeout_ms / 1000
        while not call.over.wait(wait_s):
            call.is_late, wait_s = True, RAISE_AGAIN_S
            cancel_tagged(self._spark, call.tag)


def frame_runners(runner: Runner) -> list[FrameRunner]:
    """The runners of DataFrames of a slot, which then runs on the driver."""
    runners = runner.batches.values() if isinstance(runner, NamedRunner) else (runner,)
    return [one for one in runners if isinstance(one, FrameRunner)]


def _refusal_of(job: RunningJob, once: Collection[str]) -> BaseException | None:
    """Why a job must not start. once: the ids of jobs that must never run twice."""
    if job.claimed.id in once:
        return UnrecoverableError(NOT_ONCE)
    if job.expires_s is not None and job.has_expired:
        return JobExpired()
    if not job.handle.payloads.is_plain:
        try:
            _ = job.data_text
        except PayloadUnreadable as error:
            return error
    return None


def _result(job: RunningJob, output: Output | BaseException) -> Result:
    if isinstance(output, str):
        return Result(job, RawJson(output), None)
    if isinstance(output, (StatedOutcome, JobTimeout, JobCancelled)):
        return Result(job, None, output)
    # Spark passes on what a task has raised as text.
    stack = python_trace(output) or trace_of(output)
    raised = control_error(stack)
    ending = outcome_of(raised or output)
    if ending.error is None:
        return Result(job, None, raised or output)
    reason = reason_of(raised) if raised else first_line(output)
    return Result(job, None, StatedOutcome(ending.kind, reason, stack=stack))
