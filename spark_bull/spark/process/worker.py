"""Worker: processes the jobs of a queue on the executors."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from types import TracebackType
from typing import Any, Final, NoReturn
from uuid import uuid4

from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StructType

from spark_bull.clock import monotonic_s
from spark_bull.errors import OptionError, SparkBullError, expected
from spark_bull.model.jobs import KeepRule
from spark_bull.options.parse import Options, as_options, redis_options
from spark_bull.options.table import WORK
from spark_bull.queue.core.claim_settings import ClaimSettings, default_worker
from spark_bull.queue.core.handle import QueueHandle, open_handle
from spark_bull.queue.manage.cancel import request_cancel
from spark_bull.services.promoter import Promoter
from spark_bull.spark.platform.python_check import check_python
from spark_bull.spark.process.cores import is_remote
from spark_bull.spark.process.loop_engine import LoopEngine
from spark_bull.spark.process.stream_engine import StreamEngine, StreamPlan, Transformation
from spark_bull.spark.process.udf_runner import is_udf, schema_of_payload, udf_runner
from spark_bull.spark.process.udf_transform import UdfTransformation
from spark_bull.spark.process.worker_options import (
    Processor,
    check_setup,
    check_tracer,
    checked_env,
    claim_options,
    largest_chunk,
    settle_options,
    worker_options,
)
from spark_bull.spark.process.worker_progress import WorkerProgress
from spark_bull.spark.process.worker_queues import worked_queues
from spark_bull.tracing.tracer import TracerSource
from spark_bull.worker.job.interrupts import exiting_on_sigterm, interrupted_once, killed_by_interrupts
from spark_bull.worker.job.job_options import keep_rule
from spark_bull.worker.job.job_runner import FunctionRunner, Runner
from spark_bull.worker.job.outcome_policy import BackoffStrategy, OutcomePolicy
from spark_bull.worker.slot.slot_plan import QueuePlan, SlotPlan
from spark_bull.worker.slot.slot_state import Setup
from spark_bull.worker.slot.start_limit import start_limit
from spark_bull.worker.slot.status import WorkerStatus, lag_of

#: Maximum time for jobs to finish by default, and after Ctrl-C, s.
GRACE_S: Final = 30.0
INTERRUPT_GRACE_S: Final = 5.0


class Worker:
    """Processes the jobs of a queue on the executors until it is stopped.

        def processor(job):
            return {"sent": send(job.data["to"])}

        with Worker(spark, queue="mail", processor=processor) as worker:
            worker.await_termination()

    The value that a processor returns becomes the job's `returnvalue`; an exception fails the attempt. Raise
    UnrecoverableError to skip the remaining attempts, and DelayedError, RateLimitError, ReturnedError or
    WaitingForChildren to run the job again later.
    Plain values may also be given as strings ("false", "1000").

    Parameters:
      spark: the session.
      queue: name of the queue.
      processor: a function or coroutine function of a RunningJob, or a mapping of job names to such functions, with
        "*" for all other names; or a UDF over payloads (@udf, @pandas_udf, @arrow_udf); or a function DataFrame ->
        DataFrame (annotated as such, or with engine="stream") that receives claimed jobs and returns `id`, `token`,
        and `returnvalue` or `error`. Required.
      queues: names of several queues, instead of `queue`; jobs of the first are claimed before those of the others.
      weights: how often each queue is asked first, instead of the order of `queues`: {"urgent": 3, "mail": 1}.
      engine: loop (long-running tasks; a new job starts within milliseconds) or stream (micro-batches, for SQL and
        joins). Default, auto: stream for functions of DataFrames, else loop.
      payload_schema: schema of the payloads, such as "origin STRING, distance DOUBLE". Required for a UDF; a function
        of DataFrames receives `data` parsed with it.
      slots: number of Spark tasks that process jobs in parallel, one core each; default: all cores but one, also those
        of executors that start later, unless Spark allocates executors dynamically.
      concurrency: maximum number of jobs that a slot processes at the same time: functions in threads, coroutine
        functions in an event loop; default: 1. For functions only.
      min_chunk: number of jobs for which a call of a UDF waits; default: 1. For UDFs with engine loop.
      chunk_wait_ms: maximum duration of that wait, ms; default: 1,000.
      chunk_size: maximum number of jobs per claim, and per call of a UDF; default: 100 for functions of a job, 200 for
        UDFs, or `min_chunk` if that is larger; 500 with engine stream.
      timeout_ms: maximum duration of a job, or of one call of a UDF, ms; the job's own `timeout` takes precedence.
        Default, 0: unlimited.
      lock_ms: duration of a job's lock, ms, after which the job of a dead slot can be rescued; default: 30,000.
      name: name of the worker, stored by BullMQ as `processedBy` of its jobs; default: `spark-` and the worker's id.
      limiter: rate limit of the whole queue: {"max": jobs, "duration": ms}; with "groupKey", of each group of Bull 3
        and 4.
      group: limits of each group of jobs, such as {"by": "tenant", "max": 5, "duration_ms": 1000, "concurrency": 2}: at
        most `max` start in `duration_ms`, and at most `concurrency` run at the same time. The group of a job is its
        `opts.group.id`, or else the field `by` of its payload.
      remove_on_complete: which completed jobs to remove, for jobs without their own option: True removes all, False
        none; a number is how many to keep; {"age": seconds, "count": jobs} limits both.
      remove_on_fail: the same for failed jobs.
      backoff_strategy: f(attempts made, type, error, job) -> ms, for types of backoff that are not built in.
      setup: a function without parameters that each slot calls once, before it claims jobs; `job.state` is what it
        returns or yields, or the value of the context manager that it returns. That is closed when the slot ends. May
        be a coroutine function if the processor is one. For functions only.
      env: environment variables of the slots, such as {"OMP_NUM_THREADS": "1"}; set before `setup` and `tracer` are
        called, but after the modules of a pickled function were imported. Engine loop only.
      tracer: makes a span for each attempt of a job, in the trace of the span that added it: True for the global tracer
        of the executor's process, or a function that each slot calls once, and that returns a tracer of OpenTelemetry.
        For functions only.
      metrics_minutes: minutes of metrics to keep, as Node's `maxDataPoints`; default, 0: none.
      max_started: how often a job may start, whatever ended its attempts, before it fails, as BullMQ's
        `maxStartedAttempts`; default, 0: unlimited. BullMQ and engine loop only.
      max_stalled: how often a job may stall before it fails; default: 1.
      check_ms: interval of the check for stalled jobs, ms; default: 30,000.
      promoter: whether a Promoter for this queue runs on the driver; default: True.
      checkpoint: checkpoint folder, from which a later program continues; engine stream only.
      max_jobs_per_trigger: maximum number of jobs per micro-batch; default: 10,000, with a backlog up to 100,000 while
        batches take less than 5 s; engine stream only.
      progress: whether to show a line with the worker's progress; default: on a terminal or in a notebook.
      url: `redis://`, `rediss://` or `unix://` URL, with user, password and database. Default: $SPARK_BULL_URL, else
        `host` and `port`.
      host: host of Redis if there is no `url`; default: localhost.
      port: port of Redis if there is no `url`; default: 6379.
      db: number of the database if there is no `url`; default: 0.
      username: ACL user; takes precedence over the one in `url`.
      password: password; takes precedence over the one in `url`. Default: $SPARK_BULL_PASSWORD.
      ssl: whether to use TLS if there is no `url`.
      call_timeout_ms: timeout of one call to Redis, ms, after which it is retried; default: 30,000.
      retry_ms: how long a call is retried, with exponential backoff, ms; default: 20,000.
      redis: further settings of redis-py, such as {"client_name": "reports"}.
      prefix: first part of every key, as in the Node library; default: bull.
      protocol: dialect of the queue: bull-1 (Bull 1, 2), bull (3, 4), bullmq (5, 6), or auto: detected in Redis.
      bullmq_version: "5" or "6", which differ in where jobs of a paused queue are; auto: detected in Redis.

    Raises:
      OptionError: for an invalid or unknown argument, or one without effect for this engine and processor.
      DialectError: for an argument that the queue's dialect does not support.
      ConnectionLost: if Redis cannot be reached.
    """

    def __init__(
        self,
        spark: SparkSession,
        queue: str | None = None,
        processor: Processor | Mapping[str, Processor] | None = None,
        *,
        queues: Sequence[str] | None = None,
        weights: Mapping[str, int] | None = None,
        engine: str | None = None,
        payload_schema: str | DataType | None = None,
        slots: int | None = None,
        concurrency: int | None = None,
        min_chunk: int | None = None,
        chunk_wait_ms: int | None = None,
        chunk_size: int | None = None,
        timeout_ms: int | None = None,
        lock_ms: int | None = None,
        name: str | None = None,
        limiter: Mapping[str, Any] | None = None,
        group: Mapping[str, str | int] | None = None,
        remove_on_complete: KeepRule | None = None,
        remove_on_fail: KeepRule | None = None,
        backoff_strategy: BackoffStrategy | None = None,
        setup: Setup | None = None,
        env: Mapping[str, str] | None = None,
        tracer: TracerSource = None,
        metrics_minutes: int | None = None,
        max_started: int | None = None,
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
            "concurrency": concurrency,
            "min_chunk": min_chunk,
            "chunk_wait_ms": chunk_wait_ms,
            "chunk_size": chunk_size,
            "timeout_ms": timeout_ms,
            "lock_ms": lock_ms,
            "name": name,
            "limiter": limiter,
            "group": group,
            "remove_on_complete": remove_on_complete,
            "remove_on_fail": remove_on_fail,
            "metrics_minutes": metrics_minutes,
            "max_started": max_started,
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
        if processor is None:
            raise OptionError("expected `processor`: a function of a job, functions by name, or a UDF; got none")
        self._options = options = worker_options(arguments | connection, processor, redis=redis, unknown=unknown)
        check_tracer(tracer, options["engine"], processor)
        check_setup(setup, options["engine"], processor)
        variables = checked_env(env, options["engine"])
        worked = worked_queues(queue, queues, weights, options["engine"])
        self._spark = spark
        self.handles = [open_handle(options, one.name) for one in worked]
        self.handle: QueueHandle = self.handles[0]
        for handle in self.handles:
            handle.dialect.check_options(options)
        self.id = uuid4().hex[:12]
        if options["checkpoint"] is not None:
            # The same checkpoint gives the same id, so this worker owns the jobs that an earlier program claimed.
            self.id = sha256(f"{self.handle.keys.base}{options['checkpoint']}".encode()).hexdigest()[:12]
        self._engine: LoopEngine | StreamEngine
        if options["engine"] == "stream":
            if is_remote(spark):
                raise OptionError(
                    "expected a session without Spark Connect for the engine `stream`, got a Spark Connect session: "
                    "use engine='loop', or mode=claim and mode=settle"
                )
            transform, payload = transformation_of(processor, payload_schema, options, self.handle)
            slots = options["slots"] or spark.sparkContext.defaultParallelism
            connection_options = as_options(connection, WORK) | redis_options(redis) | {"queue": worked[0].name}
            stream_plan = StreamPlan(
                self.handle,
                self.id,
                connection_options | claim_options(options, self.id, slots),
                connection_options | settle_options(options),
                transform,
                payload,
                options["lock_ms"],
                backoff_strategy,
                options["checkpoint"],
            )
            self._engine = StreamEngine(spark, stream_plan)
        else:
            claim_settings = ClaimSettings(
                sender=self.id,
                lock_ms=options["lock_ms"],
                worker=options["name"] or default_worker(self.id),
                limiter=options["limiter"],
                group=options["group"],
                max_metrics=options["metrics_minutes"],
            )
            keep = keep_rule(options["remove_on_complete"]), keep_rule(options["remove_on_fail"])
            runner = runner_of(processor, payload_schema, options["timeout_ms"], options["concurrency"])
            plan = SlotPlan(
                tuple(
                    QueuePlan(
                        handle,
                        replace(
                            claim_settings,
                            control=handle.keys.control(self.id),
                            counters=handle.keys.counters(self.id),
                        ),
                        one.weight,
                        start_limit(handle, options["max_started"]),
                    )
                    for handle, one in zip(self.handles, worked, strict=True)
                ),
                self.id,
                runner,
                largest_chunk(options, processor),
                OutcomePolicy(*keep, backoff_strategy),
                options["concurrency"],
                min_chunk=options["min_chunk"],
                chunk_wait_ms=options["chunk_wait_ms"],
                tracer=tracer,
                setup=setup,
                env=variables,
                max_stalled=options["max_stalled"],
            )
            self._engine = LoopEngine(spark, plan, options["slots"])
        self._promoter = None
        if options["promoter"]:
            self._promoter = Promoter(
                queues=[one.name for one in worked],
                max_stalled=options["max_stalled"],
                check_ms=options["check_ms"],
                redis=redis,
                **connection,
            )
        self._progress = WorkerProgress(self) if options["progress"] is not False else None
        self._forced_progress = bool(options["progress"])
        self._state = "new"
        self._sample = (monotonic_s(), 0)

    def __repr__(self) -> str:
        queues = ", ".join(handle.keys.queue for handle in self.handles)
        return f"Worker(queue={queues!r}, state={self._current_state()!r})"

    def start(self) -> Worker:
        """Starts the slots and returns immediately.

        Returns:
          This worker.

        Raises:
          OptionError: if the processor cannot be pickled.
          SparkBullError: if the worker was started before.
          ConnectionLost: if Redis cannot be reached, or the user lacks a permission that a worker needs.
        """
        if self._state != "new":
            raise SparkBullError(
                f"expected a worker that has not been started, got one that is {self._state}: create another Worker"
            )
        check_python()
        self.handle.connection.check(
            self.handle.keys.prefix, [handle.keys.queue for handle in self.handles], write=True
        )
        try:
            with interrupted_once():
                self._engine.start()
        except KeyboardInterrupt:
            if self._engine.running:
                self._stop_on_interrupt()
            raise
        self._state, self._sample = "running", (monotonic_s(), 0)
        if self._promoter is not None:
            self._promoter.start()
        if self._progress is not None:
            self._progress.start(force=self._forced_progress)
        return self

    def stop(self, grace_s: float = GRACE_S) -> bool:
        """Stops claiming and waits until the slots have finished their claimed jobs. Calling it again has no effect.

        Parameters:
          grace_s: maximum time to wait, s. Jobs that still run then return to the queue; in the engine loop, they have
            stalled. Those that have not started return as they were.

        Returns:
          Whether all slots have finished.
        """
        if self._state in ("new", "stopped"):
            self._state = "stopped"
            return True
        finished = self._engine.stop(grace_s)
        self._stop_services()
        return finished

    def pause(self) -> None:
        """Claims no further jobs until resume() is called; jobs that are claimed are finished.

        Raises:
          SparkBullError: if the worker does not run, or has the engine stream.
          ConnectionLost: if Redis cannot be reached.
        """
        self._loop_engine("pause").pause()
        self._state = "paused"

    def resume(self) -> None:
        """Claims jobs again after pause().

        Raises:
          SparkBullError: if the worker does not run, or has the engine stream.
          ConnectionLost: if Redis cannot be reached.
        """
        self._loop_engine("resume").resume()
        self._state = "running"

    def cancel(self, job_id: str, reason: str | None = None, *, queue: str | None = None) -> None:
        """Ends a job that is processed: it fails without a further attempt.

        A function or UDF gets JobCancelled within a second, a coroutine CancelledError; `RunningJob.cancelled` is true.
        A job that ends before that, or returns a value nevertheless, keeps its outcome. The job fails with the reason
        `cancelled`, or `cancelled: <reason>`.

        Parameters:
          job_id: id of the job.
          reason: why it is cancelled.
          queue: name of its queue; required if the worker has several queues, as ids are unique per queue only.

        Raises:
          JobMissing: if there is no such job.
          WrongState: if it is not active, or held by a Node worker.
          OptionError: for a wrong `queue`, or none where it is required.
          SparkBullError: if the worker does not run, or has the engine stream.
          ConnectionLost: if Redis cannot be reached.
        """
        self._loop_engine("cancel")
        handles = [handle for handle in self.handles if queue in (None, handle.keys.queue)]
        if len(handles) != 1:
            names = ", ".join(handle.keys.queue for handle in self.handles)
            raise OptionError(f"expected `queue` to be one of this worker's queues ({names}), got: {queue!r}")
        request_cancel(handles[0], job_id, reason)

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Waits until the worker is stopped or fails, or the program is to end: a `with` block then stops the worker.

        SIGTERM raises SystemExit. Ctrl-C raises an exception that is a KeyboardInterrupt, and a SystemExit with the
        status 130 unless Python is interactive: a program that does not catch it ends without a trace.

        Parameters:
          timeout_s: maximum time to wait, s; None: unlimited.

        Returns:
          Whether the worker has ended.

        Raises:
          WorkerFailed: if the slots could not be started, or the streaming query failed.
        """
        with exiting_on_sigterm(), interrupted_once():
            ended = self._engine.wait(timeout_s)
        if ended:
            self._stop_services()
            if self._engine.error is not None:
                raise self._engine.error
        return ended

    def status(self) -> WorkerStatus:
        """Returns the state and counters of the worker, and the backlog of the queue.

        Returns:
          The counters; `jobs_per_second` is the rate since the previous call.

        Raises:
          ConnectionLost: if Redis cannot be reached.
        """
        totals = self._engine.totals()
        finished = totals["completed"] + totals["failed"]
        now, (before, finished_before) = monotonic_s(), self._sample
        self._sample = (now, finished)
        rate = (finished - finished_before) / (now - before) if now > before else 0.0
        return WorkerStatus(
            state=self._current_state(), jobs_per_second=max(0.0, rate), lag=sum(map(lag_of, self.handles)), **totals
        )

    def __enter__(self) -> Worker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or not issubclass(kind, KeyboardInterrupt):
            self.stop()
            return
        self._stop_on_interrupt()

    def _stop_on_interrupt(self) -> None:
        """Stops the worker, and prints in one line what it has done. Ctrl-C again ends the process at once."""
        with killed_by_interrupts():
            if self._state == "new":
                # Its engine has started, but not all of it.
                self._state = "running"
            self.stop(INTERRUPT_GRACE_S)
            queues = ", ".join(handle.keys.queue for handle in self.handles)
            try:
                done = str(self.status())
            except SparkBullError as error:
                done = str(error)
            print(f"Ctrl-C: worker of {queues}: {done}", file=sys.stderr)

    def _loop_engine(self, method: str) -> LoopEngine:
        """Returns the engine, if it can pause."""
        if not isinstance(self._engine, LoopEngine):
            raise SparkBullError(
                f"{method}() has no effect with engine='stream': use engine='loop', or stop() the worker"
            )
        state = self._current_state()
        if state not in ("running", "paused"):
            raise SparkBullError(f"expected a running worker for {method}(), this one is {state}")
        return self._engine

    def _current_state(self) -> str:
        if self._state in ("running", "paused") and not self._engine.running:
            return "failed" if self._engine.error else "stopped"
        return self._state

    def _stop_services(self) -> None:
        if self._promoter is not None:
            self._promoter.stop()
        if self._progress is not None:
            self._progress.stop()
        self._state = "failed" if self._engine.error else "stopped"


def transformation_of(
    processor: Processor | Mapping[str, Processor],
    payload_schema: str | DataType | None,
    options: Options,
    handle: QueueHandle,
) -> tuple[Transformation, StructType | None]:
    """Returns the transformation of the micro-batches and the schema of their payloads. Raises OptionError."""
    if is_udf(processor):
        runner = udf_runner(processor, payload_schema, options["timeout_ms"])
        return UdfTransformation(handle, runner, options["chunk_size"] or 0), None
    if not callable(processor):
        raise expected("processor", "a function DataFrame -> DataFrame, or a UDF", processor)
    if payload_schema is None:
        return processor, None
    payload = schema_of_payload(payload_schema)
    if not isinstance(payload, StructType):
        raise expected("payload_schema", "columns, such as 'a STRING, b INT', with engine='stream'", payload_schema)
    return processor, payload


def runner_of(
    processor: Processor | Mapping[str, Processor],
    payload_schema: str | DataType | None,
    timeout_ms: int,
    concurrency: int = 1,
) -> Runner:
    """Returns the runner of a processor in a slot. Raises OptionError for what can't be one."""
    if is_udf(processor):
        if concurrency > 1:
            raise OptionError("`concurrency` has no effect on a UDF, which gets chunks: set `slots` or `chunk_size`")
        return udf_runner(processor, payload_schema, timeout_ms)
    if payload_schema is not None:
        raise OptionError(
            "`payload_schema` is for UDFs; a function of a job gets parsed JSON as job.data: leave it out"
        )
    if isinstance(processor, Mapping):
        _check_by_name(processor)
    elif not callable(processor):
        raise expected("processor", "a function of a job, functions by name, or a UDF", processor)
    return FunctionRunner(processor, timeout_ms)


def _check_by_name(processors: Mapping[str, Processor]) -> None:
    if not processors:
        raise expected("processor", "a mapping of job names to functions", dict(processors))
    for name, function in processors.items():
        if not isinstance(name, str) or not callable(function) or is_udf(function):
            raise expected(f"processor[{name!r}]", "a function of a job, under the name of the jobs or '*'", function)
