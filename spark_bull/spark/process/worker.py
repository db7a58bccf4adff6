"""Worker: jobs of a queue, processed on the executors."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from hashlib import sha256
from types import TracebackType
from typing import Any, NoReturn
from uuid import uuid4

from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import DataType, StructType

from spark_bull.clock import monotonic_s
from spark_bull.errors import OptionError, SparkBullError, expected
from spark_bull.model import KeepRule
from spark_bull.options import WORK, Options, as_options, redis_options
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

    What a processor returns becomes the job's `returnvalue`, and an exception fails the attempt; UnrecoverableError,
    DelayedError and RateLimitError say more. Plain values may be given as text ("false", "1000"), too.

    Parameters:
      spark: the session.
      queue: name of the queue.
      processor: a function of a RunningJob; or a UDF over payloads (@udf, @pandas_udf, @arrow_udf); or a function
        DataFrame -> DataFrame (annotated so, or with engine="stream"), which gets claimed jobs and returns `id`,
        `token`, and `returnvalue` or `error`.
      engine: loop (long tasks, a new job starts within milliseconds) or stream (micro-batches, for SQL and joins).
        Default, auto: stream for functions of DataFrames, else loop.
      payload_schema: schema of the payloads, such as "origin STRING, distance DOUBLE"; a UDF requires it, and with it a
        function of DataFrames gets parsed `data`.
      slots: Spark tasks that work at the same time, each on a core; default: all cores but one.
      chunk_size: maximum number of jobs that are claimed in one call, and given to one call of a UDF; default: 200
        (loop), 500 (stream).
      timeout_ms: maximum duration of a job, or of one call of a UDF, ms; the job's own `timeout` takes precedence.
        Default, 0: unlimited.
      lock_ms: after what time the jobs of a slot that died come back, ms; default: 30,000.
      name: name of the worker, which BullMQ shows as a job's `processedBy`; default: `spark-` and the worker's id.
      limiter: rate limit of the whole queue: {"max": jobs, "duration": ms}.
      remove_on_complete: for jobs without a rule of their own: True keeps none that has completed, False all, a number
        so many; {"age": seconds, "count": jobs} limits both.
      remove_on_fail: the same for failed jobs.
      backoff_strategy: f(attempts made, type, error, job) -> ms, for types of backoff that aren't built in.
      metrics_minutes: minutes of metrics to keep, as Node's `maxDataPoints`; default, 0: none.
      max_stalled: how often a job may lose its worker before it fails; default: 1.
      check_ms: interval of the check for jobs that have lost their worker, ms; default: 30,000.
      promoter: whether a Promoter for this queue runs on the driver; default: True.
      checkpoint: folder of the checkpoint, by which a later program continues; engine stream only.
      max_jobs_per_trigger: maximum number of jobs per micro-batch; default: 10,000; engine stream only.
      progress: whether a line with the worker's progress is shown; default: on a terminal or in a notebook.
      url: `redis://`, `rediss://` or `unix://`, with user, password and database inside. Default: $SPARK_BULL_URL, else
        `host` and `port`.
      host: host of Redis, when there is no `url`; default: localhost.
      port: port of Redis, when there is no `url`; default: 6379.
      db: number of the database, when there is no `url`; default: 0.
      username: ACL user; takes precedence over the one in `url`.
      password: password; takes precedence over the one in `url`. Default: $SPARK_BULL_PASSWORD.
      ssl: whether to use TLS, when there is no `url`.
      call_timeout_ms: timeout of one call to Redis, ms, after which it is retried; default: 30,000.
      retry_ms: for how long a call is retried, ms, with growing pauses; default: 20,000.
      redis: further settings of redis-py, such as {"client_name": "reports"}.
      prefix: first part of every key, as in the Node library; default: bull.
      protocol: dialect of the queue: bull-1 (Bull 1, 2), bull (3, 4), bullmq (5, 6), or auto: what is found in Redis.
      bullmq_version: "5" or "6": where jobs of a paused BullMQ queue go; auto: by what is found in Redis.

    Raises:
      OptionError: for an argument that is wrong or unknown, or has no effect with this engine and processor.
      DialectError: for an argument that the queue's dialect has no use for.
      ConnectionLost: when Redis can't be reached.
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
        timeout_ms: int | None = None,
        lock_ms: int | None = None,
        name: str | None = None,
        limiter: Mapping[str, int] | None = None,
        remove_on_complete: KeepRule | None = None,
        remove_on_fail: KeepRule | None = None,
        backoff_strategy: BackoffStrategy | None = None,
        metrics_minutes: int | None = None,
        max_stalled: int | None = None,
        check_ms: int | None = None,
        promoter: bool | None = None,
        checkpoint: str | None = None,
        max_jobs_per_trigger: int | None = None,
        progress: bool | None = None,
        url: str | None = None,
        host: str | None = None,
        port: int | None = None,
        db: int | None = None,
        username: str | None = None,
        password: str | None = None,
        ssl: bool | None = None,
        call_timeout_ms: int | None = None,
        retry_ms: int | None = None,
        redis: Mapping[str, str] | None = None,
        prefix: str | None = None,
        protocol: str | None = None,
        bullmq_version: str | None = None,
        **unknown: NoReturn,
    ) -> None:
        arguments = {
            "engine": engine,
            "slots": slots,
            "chunk_size": chunk_size,
            "timeout_ms": timeout_ms,
            "lock_ms": lock_ms,
            "name": name,
            "limiter": limiter,
            "remove_on_complete": remove_on_complete,
            "remove_on_fail": remove_on_fail,
            "metrics_minutes": metrics_minutes,
            "max_stalled": max_stalled,
            "check_ms": check_ms,
            "promoter": promoter,
            "checkpoint": checkpoint,
            "max_jobs_per_trigger": max_jobs_per_trigger,
            "progress": progress,
        }
        connection: dict[str, Any] = {
            "url": url,
            "host": host,
            "port": port,
            "db": db,
            "username": username,
            "password": password,
            "ssl": ssl,
            "call_timeout_ms": call_timeout_ms,
            "retry_ms": retry_ms,
            "prefix": prefix,
            "protocol": protocol,
            "bullmq_version": bullmq_version,
        }
        self._options = chosen = worker_options(arguments | connection, processor, redis=redis, unknown=unknown)
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
            where = as_options(connection, WORK) | redis_options(redis) | {"queue": queue}
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
                max_metrics=chosen["metrics_minutes"],
                control=self.handle.keys.control(self.id),
            )
            keep = keep_rule(chosen["remove_on_complete"]), keep_rule(chosen["remove_on_fail"])
            runner = runner_of(processor, payload_schema, chosen["timeout_ms"])
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
                queues=[queue],
                max_stalled=chosen["max_stalled"],
                check_ms=chosen["check_ms"],
                redis=redis,
                **connection,
            )
        self._progress = WorkerProgress(self) if chosen["progress"] is not False else None
        self._forced_progress = bool(chosen["progress"])
        self._state = "new"
        self._sample = (monotonic_s(), 0)

    def __repr__(self) -> str:
        return f"Worker(queue={self.handle.keys.queue!r}, state={self._shown_state()!r})"

    def start(self) -> Worker:
        """Starts the slots, and returns at once.

        Returns:
          This worker.

        Raises:
          OptionError: for a processor that can't be pickled.
          SparkBullError: when the worker was started before.
          ConnectionLost: when Redis can't be reached, or forbids what a worker needs.
        """
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

    def stop(self, grace_s: float = 30.0) -> bool:
        """Stops claiming, and lets slots finish the jobs that they have claimed. Stopping again does nothing.

        Parameters:
          grace_s: maximum time for that, s. What is cut off comes back to the queue when its lock expires.

        Returns:
          Whether all slots have finished.
        """
        if self._state in ("new", "stopped"):
            self._state = "stopped"
            return True
        finished = self._engine.stop(grace_s)
        self._wind_up()
        return finished

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Waits until the worker is stopped or fails.

        Parameters:
          timeout_s: maximum time to wait, s; None: unlimited.

        Returns:
          Whether the worker has ended.

        Raises:
          WorkerFailed: when the slots could not be started, or Spark gave them up.
        """
        ended = self._engine.wait(timeout_s)
        if ended:
            self._wind_up()
            if self._engine.error is not None:
                raise self._engine.error
        return ended

    def status(self) -> WorkerStatus:
        """Tells what the worker has done so far, and how much there is to do.

        Returns:
          The counters; `jobs_per_second` is the rate since the last call.

        Raises:
          ConnectionLost: when Redis can't be reached.
        """
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
        runner = udf_runner(processor, payload_schema, options["timeout_ms"])
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
