"""Worker: jobs of a queue, processed on the executors."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from hashlib import sha256
from types import TracebackType
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import DataType, StructType

from spark_bull.clock import monotonic_s
from spark_bull.errors import OptionError, SparkBullError, expected
from spark_bull.options import Options, as_texts
from spark_bull.queue.claim import ClaimSettings, default_worker
from spark_bull.queue.handle import QueueHandle, open_handle
from spark_bull.services.promoter import Promoter
from spark_bull.spark.process.loop_engine import LoopEngine
from spark_bull.spark.process.stream_engine import StreamEngine, StreamPlan, Transformation
from spark_bull.spark.process.udf_runner import is_udf, schema_of_payload, udf_runner
from spark_bull.spark.process.udf_transform import UdfTransformation
from spark_bull.spark.process.worker_options import Processor, claim_options, settle_options, worker_options
from spark_bull.spark.process.worker_progress import WorkerProgress
from spark_bull.spark.python_check import check_python
from spark_bull.worker.job_runner import BackoffStrategy, FunctionRunner, OutcomePolicy, Runner
from spark_bull.worker.loop import SlotPlan
from spark_bull.worker.outcome_policy import keep_rule
from spark_bull.worker.status import WorkerStatus, lag_of


class Worker:
    """Processes jobs of a queue on the executors until it is stopped.

        def processor(job):
            return {"sent": send(job.data["to"])}

        with Worker(spark, queue="mail", processor=processor) as worker:
            worker.await_termination()

    processor: a function of a job (see RunningJob), or a UDF over payloads (@udf, @pandas_udf, @arrow_udf) with
    `payload_schema`, DDL such as "origin STRING, distance DOUBLE". What it returns becomes the job's `returnvalue`;
    raising fails the attempt; UnrecoverableError, DelayedError and RateLimitError say more. Or a function DataFrame
    -> DataFrame (annotated so, or with engine="stream"): it gets claimed jobs, `data` parsed when `payload_schema` is
    given, and returns `id`, `token`, and `returnvalue` or `error`.

    engine: loop (long tasks, a new job starts within milliseconds) or stream (micro-batches, for SQL and joins); auto
    takes stream for DataFrame functions, else loop.

    Arguments are those of the option table, too, so that a text ("false", "1000") counts as what it says:

    slots: Spark tasks that work at the same time, each on a core; default: all cores but one.
    chunk_size: most jobs claimed in one call (loop: 200, stream: 500), and given to one call of a UDF.
    timeout: ms that a job may take, 0: any; a job's own `timeout` goes first; for a UDF it is that of one call.
    lock_ms: how soon the jobs of a slot that died come back (30,000); kept while it lives.
    name: name of the worker; BullMQ shows it as a job's `processedBy` (default: `spark-` and the worker's id).
    limiter: {"max": jobs, "duration": ms}: so many may start in so long, in the whole queue.
    remove_on_complete, remove_on_fail: for jobs that say nothing themselves: True keeps none, False all, a number so
    many; or {"age": s, "count": n}.
    backoff_strategy: f(attempts made, type, error, job) -> ms, for types of backoff that aren't built in.
    metrics: minutes of metrics to keep, as Node's maxDataPoints.
    promoter: whether delayed and stalled jobs are looked after from here, too.
    max_stalled, check_ms: how often a job may lose its worker before it fails (1), and how often that is
    looked for (30,000).
    checkpoint, max_jobs_per_trigger: engine stream only: folder that outlives the program; size of a micro-batch.
    progress: show a line of it; default: on a terminal or in a notebook.
    Further options are those of the data source (`url`, `prefix`, `protocol`, …).

    Raises OptionError for an argument that is wrong or has no effect with this engine and processor, DialectError for
    one that the queue's dialect knows nothing of, ConnectionLost when Redis can't be reached.
    """

    def __init__(
        self,
        spark: SparkSession,
        queue: str,
        processor: Processor,
        *,
        engine: str | None = None,
        payload_schema: str | DataType | None = None,
        slots: int | None = None,
        chunk_size: int | None = None,
        timeout: int | None = None,
        lock_ms: int | None = None,
        name: str | None = None,
        limiter: Mapping[str, int] | None = None,
        remove_on_complete: bool | int | Mapping[str, int] | None = None,
        remove_on_fail: bool | int | Mapping[str, int] | None = None,
        backoff_strategy: BackoffStrategy | None = None,
        metrics: int | None = None,
        max_stalled: int | None = None,
        check_ms: int | None = None,
        promoter: bool | None = None,
        checkpoint: str | None = None,
        max_jobs_per_trigger: int | None = None,
        progress: bool | None = None,
        **options: Any,
    ) -> None:
        arguments = {
            "engine": engine,
            "slots": slots,
            "chunk_size": chunk_size,
            "timeout": timeout,
            "lock_ms": lock_ms,
            "name": name,
            "limiter": limiter,
            "remove_on_complete": remove_on_complete,
            "remove_on_fail": remove_on_fail,
            "metrics": metrics,
            "max_stalled": max_stalled,
            "check_ms": check_ms,
            "promoter": promoter,
            "checkpoint": checkpoint,
            "max_jobs_per_trigger": max_jobs_per_trigger,
            "progress": progress,
        }
        self._options = chosen = worker_options(options | arguments, processor)
        self._spark = spark
        self.handle: QueueHandle = open_handle(chosen, queue)
        self.handle.dialect.check_options(chosen)
        self.id = uuid4().hex[:12]
        if chosen["checkpoint"] is not None:
            # The jobs that an earlier program claimed are this worker's, too.
            self.id = sha256(f"{self.handle.keys.base}{chosen['checkpoint']}".encode()).hexdigest()[:12]
        self._engine: LoopEngine | StreamEngine
        if chosen["engine"] == "stream":
            if _is_remote(spark):
                raise OptionError(
                    "expected a session without Spark Connect for the engine `stream`: use the engine `loop`, or "
                    "mode=claim and mode=settle"
                )
            transform, payload = transformation_of(processor, payload_schema, chosen, self.handle)
            slots = _slots(spark, chosen["slots"], spare=0)
            where = as_texts(options) | {"queue": queue}
            stream_plan = StreamPlan(
                self.handle,
                self.id,
                where | claim_options(chosen, self.id, slots),
                where | settle_options(chosen),
                transform,
                payload,
                chosen["lock_ms"],
                backoff_strategy,
                chosen["checkpoint"],
            )
            self._engine = StreamEngine(spark, stream_plan)
        else:
            claim_settings = ClaimSettings(
                sender=self.id,
                lock_ms=chosen["lock_ms"],
                worker=chosen["name"] or default_worker(self.id),
                limiter=chosen["limiter"],
                max_metrics=chosen["metrics"],
                control=self.handle.keys.control(self.id),
            )
            keep = keep_rule(chosen["remove_on_complete"]), keep_rule(chosen["remove_on_fail"])
            runner = runner_of(processor, payload_schema, chosen["timeout"])
            plan = SlotPlan(
                self.handle,
                claim_settings,
                self.id,
                runner,
                OutcomePolicy(*keep, backoff_strategy),
                chosen["chunk_size"],
            )
            self._engine = LoopEngine(spark, plan, _slots(spark, chosen["slots"]))
        self._promoter = None
        if chosen["promoter"]:
            self._promoter = Promoter(
                queues=[queue], max_stalled=chosen["max_stalled"], check_ms=chosen["check_ms"], **options
            )
        self._progress = WorkerProgress(self) if chosen["progress"] is not False else None
        self._forced_progress = bool(chosen["progress"])
        self._state = "new"
        self._sample = (monotonic_s(), 0)

    def __repr__(self) -> str:
        return f"Worker(queue={self.handle.keys.queue!r}, state={self._shown_state()!r})"

    def start(self) -> Worker:
        """Starts the slots and returns at once. Raises OptionError, ConnectionLost."""
        if self._state != "new":
            raise SparkBullError(
                f"expected a worker that hasn't been started yet, this one is {self._state}: make another"
            )
        check_python()
        keys = self.handle.keys
        self.handle.connection.check(keys.prefix, [keys.queue], write=True)
        self._engine.start()
        self._state, self._sample = "running", (monotonic_s(), 0)
        if self._promoter is not None:
            self._promoter.start()
        if self._progress is not None:
            self._progress.start(force=self._forced_progress)
        return self

    def stop(self, grace: float = 30.0) -> bool:
        """Stops claiming and lets slots finish what they hold, for `grace` s at most; returns whether all did.

        What is cut off comes back to the queue when its lock ends. Stopping again does nothing.
        """
        if self._state in ("new", "stopped"):
            self._state = "stopped"
            return True
        finished = self._engine.stop(grace)
        self._wind_up()
        return finished

    def await_termination(self, timeout: float | None = None) -> bool:
        """Waits until the worker is stopped or fails, `timeout` s at most; returns whether it has ended.

        Raises WorkerFailed when the slots couldn't be started.
        """
        ended = self._engine.wait(timeout)
        if ended:
            self._wind_up()
            if self._engine.error is not None:
                raise self._engine.error
        return ended

    def status(self) -> WorkerStatus:
        """What has been done so far. Raises ConnectionLost."""
        totals = self._engine.totals()
        finished = totals["completed"] + totals["failed"]
        now, (before, finished_before) = monotonic_s(), self._sample
        self._sample = (now, finished)
        rate = (finished - finished_before) / (now - before) if now > before else 0.0
        return WorkerStatus(
            state=self._shown_state(), jobs_per_second=max(0.0, rate), lag=lag_of(self.handle), **totals
        )

    def __enter__(self) -> Worker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _shown_state(self) -> str:
        if self._state == "running" and not self._engine.running:
            return "failed" if self._engine.error else "stopped"
        return self._state

    def _wind_up(self) -> None:
        if self._promoter is not None:
            self._promoter.stop()
        if self._progress is not None:
            self._progress.stop()
        self._state = "failed" if self._engine.error else "stopped"


def transformation_of(
    processor: Processor, payload_schema: str | DataType | None, options: Options, handle: QueueHandle
) -> tuple[Transformation, StructType | None]:
    """What a stream's batches go through, and the type that their payloads are parsed as. Raises OptionError."""
    if is_udf(processor):
        runner = udf_runner(processor, payload_schema, options["timeout"])
        return UdfTransformation(handle, runner, options["chunk_size"] if "chunk_size" in options.given else 0), None
    if not callable(processor):
        raise expected("processor", "a function DataFrame -> DataFrame, or a UDF", processor)
    if payload_schema is None:
        return processor, None
    payload = schema_of_payload(payload_schema)
    if not isinstance(payload, StructType):
        raise expected("payload_schema", "columns, such as 'a STRING, b INT', in the stream engine", payload_schema)
    return processor, payload


def runner_of(processor: Processor, payload_schema: str | DataType | None, timeout_ms: int) -> Runner:
    """What runs a processor in a slot. Raises OptionError for what can't be one."""
    if is_udf(processor):
        return udf_runner(processor, payload_schema, timeout_ms)
    if not callable(processor):
        raise expected("processor", "a function of a job, or a UDF", processor)
    if inspect.iscoroutinefunction(processor):
        raise OptionError(
            "expected `processor` to be a plain function, got a coroutine function: wrap it, "
            "such as lambda job: asyncio.run(processor(job))"
        )
    if payload_schema is not None:
        raise OptionError(
            "`payload_schema` is for UDFs; a function of a job gets parsed JSON as job.data: leave it out"
        )
    return FunctionRunner(processor, timeout_ms)


def _slots(spark: SparkSession, given: int | None, spare: int = 1) -> int:
    """How many tasks are to work at once: all cores but `spare`, unless the user says."""
    return max(1, _cores(spark) - spare) if given is None else given


def _is_remote(spark: SparkSession) -> bool:
    """Whether this is a session of Spark Connect, which has no context."""
    return getattr(spark, "sparkContext", None) is None


def _cores(spark: SparkSession) -> int:
    """How many tasks the cluster runs at once, as far as Spark knows."""
    if not _is_remote(spark):
        return int(spark.sparkContext.defaultParallelism)
    # Spark splits a range into as many partitions.
    partitions = spark.range(1 << 16).select(f.spark_partition_id().alias("partition")).distinct()
    return partitions.count()
