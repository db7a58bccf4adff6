"""Worker: processes the jobs of a queue on the executors."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from hashlib import sha256
from types import TracebackType
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pyspark.sql import SparkSession

from spark_bull.clock import monotonic_s
from spark_bull.deprecated import with_old_arguments
from spark_bull.errors import OptionError, SparkBullError
from spark_bull.options.arguments import WorkerArguments, connection_of, with_options
from spark_bull.options.table import WORK
from spark_bull.queue.core.handle import QueueHandle
from spark_bull.queue.manage.cancel import request_cancel
from spark_bull.services.loss_check import LossWatch
from spark_bull.services.promoter import Promoter
from spark_bull.services.service import Service
from spark_bull.short_errors import short_errors
from spark_bull.spark.platform.python_check import ensure_python
from spark_bull.spark.process.kinds import Processor
from spark_bull.spark.process.loop_engine import LoopEngine
from spark_bull.spark.process.loop_plan import plan_loop
from spark_bull.spark.process.stream_engine import StreamEngine
from spark_bull.spark.process.stream_plan import plan_stream
from spark_bull.spark.process.worker_options import (
    PayloadSchema,
    Processing,
    check_setup,
    check_telemetry,
    checked_env,
    worker_options,
)
from spark_bull.spark.process.worker_progress import WorkerProgress
from spark_bull.spark.process.worker_queues import opened, worked_queues
from spark_bull.tracing.tracer import MeterSource, TracerSource
from spark_bull.worker.job.interrupts import exiting_on_sigterm, interrupted_once, killed_by_interrupts
from spark_bull.worker.job.outcome_policy import BackoffStrategy
from spark_bull.worker.slot.slot_state import Setup
from spark_bull.worker.slot.status import WorkerStatus, lag_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: Maximum time for jobs to finish by default, and after Ctrl-C, s.
STOP_WITHIN_S: Final = 30.0
INTERRUPT_WITHIN_S: Final = 5.0


@short_errors
@with_options(WorkerArguments, WORK)
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
      processor: a function or coroutine function of a RunningJob; or a UDF over payloads (@udf, @pandas_udf,
        @arrow_udf); or a function DataFrame -> DataFrame (annotated as such, or with engine="stream") that receives
        claimed jobs and returns `id`, `token`, and `returnvalue` or `error`; or a mapping of job names to any of these,
        with "*" for all other names. Required.
      queues: names of several queues, instead of `queue`; jobs of the first are claimed before jobs of the others.
      weights: how often each queue is asked first, instead of the order of `queues`: {"urgent": 3, "mail": 1}.
      payload_schema: schema of the payloads, such as "origin STRING, distance DOUBLE". Required for a UDF; a function
        of DataFrames receives `data` parsed with it. With processors by name also schemas by name.
      backoff_strategy: f(attempts made, type, error, job) -> ms, for types of backoff that are not built in.
      setup: a function without parameters that each slot calls once, before it claims jobs; `job.state` is what it
        returns or yields, or the value of the context manager that it returns. That is closed when the slot ends. May
        be a coroutine function if the processor is one. For functions only.
      env: environment variables of the slots, such as {"OMP_NUM_THREADS": "1"}; set before `setup`, `tracer` and
        `meter` are called, but after the modules of a pickled function were imported. Not with functions of DataFrames,
        nor with the engine stream.
      tracer: makes a span for each attempt of a job, in the trace of the span that added it, or for each batch of a UDF
        or a function of DataFrames, with links to those spans: True for the global tracer of the process, or a function
        that each slot, or the query of the engine stream, calls once, and that returns a tracer of OpenTelemetry.
      meter: counts jobs by what becomes of them, and records how long they are processed, as BullMQ does: True for the
        global MeterProvider of the process, or a function that each slot calls once, and that returns a MeterProvider
        of OpenTelemetry, which is shut down when the slot ends. Engine loop only.
      options: options of the connection, the slots and the jobs; see WorkerArguments.

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
        payload_schema: PayloadSchema = None,
        backoff_strategy: BackoffStrategy | None = None,
        setup: Setup | None = None,
        env: Mapping[str, str] | None = None,
        tracer: TracerSource = None,
        meter: MeterSource = None,
        **options: Unpack[WorkerArguments],
    ) -> None:
        if processor is None:
            raise OptionError("expected `processor`: a function of a job, functions by name, or a UDF; got none")
        parsed = worker_options(options, processor)
        engine = parsed["engine"]
        check_telemetry(tracer, meter, engine)
        check_setup(setup, engine, processor)
        variables = checked_env(env, engine, processor)
        processing = Processing(processor, payload_schema, backoff_strategy, setup, variables, tracer, meter)
        worked = opened(parsed, worked_queues(queue, queues, weights, engine))
        self.handles = [one.handle for one in worked]
        self.handle: QueueHandle = self.handles[0]
        for handle in self.handles:
            handle.dialect.check_options(parsed)
        self.id = uuid4().hex[:12]
        if parsed["checkpoint"] is not None:
            # The same checkpoint gives the same id, so this worker owns the jobs that an earlier program claimed.
            self.id = sha256(f"{self.handle.keys.base}{parsed['checkpoint']}".encode()).hexdigest()[:12]
        self._engine: LoopEngine | StreamEngine
        if engine == "stream":
            query = plan_stream(spark, self.id, self.handle, options, parsed, processing)
            self._engine = StreamEngine(spark, query)
        else:
            plan = plan_loop(spark, self.id, self.handles, [one.weight for one in worked], parsed, processing)
            self._engine = LoopEngine(spark, plan, parsed["slots"])
        # A promoter looks for losses, too.
        self._service: Service = LossWatch(self.handles)
        if parsed["promoter"]:
            self._service = Promoter(
                queues=[handle.keys.queue for handle in self.handles],
                max_stalled=parsed["maxStalled"],
                check_ms=parsed["checkMs"],
                **connection_of(options),
            )
        self._progress = WorkerProgress(self) if parsed["progress"] is not False else None
        self._forced_progress = bool(parsed["progress"])
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
        ensure_python()
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
        self._service.start()
        if self._progress is not None:
            self._progress.start(force=self._forced_progress)
        return self

    @with_old_arguments
    def stop(self, timeout_s: float = STOP_WITHIN_S) -> bool:
        """Stops claiming and waits until the slots have finished their claimed jobs. Calling it again has no effect.

        Parameters:
          timeout_s: maximum time to wait, s. Jobs that still run then return to the queue; in the engine loop, they
            have stalled. Those that have not started return as they were.

        Returns:
          Whether all slots have finished.
        """
        if self._state in ("new", "stopped"):
            self._state = "stopped"
            return True
        finished = self._engine.stop(timeout_s)
        self._stop_services()
        return finished

    def pause(self) -> None:
        """Claims no more jobs until resume() is called; jobs that are claimed are finished.

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
                # The jobs of a failed query return to the queue.
                self._engine.stop(0)
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
            self.stop(INTERRUPT_WITHIN_S)
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
        self._state = "failed" if self._engine.error else "stopped"
        if self._progress is not None:
            self._progress.stop()
        self._service.stop()
