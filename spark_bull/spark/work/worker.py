"""Worker: processes the jobs of a queue on the executors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from spark_bull.core.error_text import short_errors
from spark_bull.core.errors import OptionError
from spark_bull.core.model.guards import Guard
from spark_bull.core.model.limits import SlotRange
from spark_bull.core.options.arguments import WorkerArguments, connection_of, with_options
from spark_bull.core.options.table import WorkOptions
from spark_bull.core.tracing.tracer import MeterSource, TracerSource
from spark_bull.run.job.outcome_policy import BackoffStrategy
from spark_bull.run.slot.slot_state import Setup
from spark_bull.run.worker.base_worker import BaseWorker
from spark_bull.run.worker.processors import Processor
from spark_bull.run.worker.slots_plan import opened, worked_queues
from spark_bull.run.worker.worker_options import processing_of, worker_options
from spark_bull.spark.work.elastic_engine import ElasticEngine
from spark_bull.spark.work.spark_engine import SparkEngine
from spark_bull.spark.work.udf_runner import PayloadSchema
from spark_bull.spark.work.worker_plan import plan_worker

if TYPE_CHECKING:
    from typing_extensions import Unpack


@short_errors
@with_options(WorkerArguments, WorkOptions)
class Worker(BaseWorker):
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
      @arrow_udf); or a function DataFrame -> DataFrame, annotated as such. That receives claimed jobs, and returns
      `id`, `token`, and `returnvalue` or `error`. Or a mapping of job names to any of these, with "*" for all other
      names. Required.
      queues: names of several queues, instead of `queue`; jobs of the first are claimed before jobs of the others.
      weights: how often each queue is asked first, instead of the order of `queues`: {"urgent": 3, "mail": 1}.
      payload_schema: schema of the payloads, such as "origin STRING, distance DOUBLE". Required for a UDF; a function
        of DataFrames receives `data` parsed with it. With processors by name also schemas by name.
      backoff_strategy: f(attempts made, type, error, job) -> ms, for types of backoff that are not built in.
      setup: a function without parameters that each slot calls once, before it claims jobs. `job.state` is what it
        returns or yields, or the value of the context manager that it returns. That is closed when the slot ends. May
        be a coroutine function if the processor is one. For functions only.
      env: environment variables of the slots, such as {"OMP_NUM_THREADS": "1"}; set before `setup`, `tracer` and
        `meter` are called, but after the modules of a pickled function were imported. Not with functions of
        DataFrames.
      tracer: makes a span for each attempt of a job, in the trace of the span that added it. A batch of a UDF or of a
      function of DataFrames has one span, with links to those spans. True for the global tracer of the process, or a
      function that each slot calls once, and that returns a tracer of OpenTelemetry.
      meter: counts jobs by what becomes of them, and records how long they are processed, as BullMQ does. True for the
      global MeterProvider of the process, or a function that each slot calls once. It returns a MeterProvider of
      OpenTelemetry, which is shut down when the slot ends.
      guards: rules of its promoter that pause a queue while its jobs fail, such as Guard("mail", "failedRate > 0.2 over
        1m"). Of several workers and promoters with equal guards, one pauses a queue; any of them resumes it.
      options: options of the connection, the slots and the jobs; see WorkerArguments.

    Raises:
      OptionError: for an invalid or unknown argument, or one without effect for this processor.
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
        guards: Guard | Iterable[Guard] = (),
        **options: Unpack[WorkerArguments],
    ) -> None:
        if processor is None:
            raise OptionError("expected `processor`: a function of a job, functions by name, or a UDF; got none")
        parsed = worker_options(options, processor)
        processing = processing_of(
            processor,
            backoff_strategy=backoff_strategy,
            setup=setup,
            env=env,
            tracer=tracer,
            meter=meter,
        )
        worked = opened(parsed, worked_queues(queue, queues, weights))
        super().__init__(worked, parsed, connection_of(options), guards)
        plan = plan_worker(spark, self.id, worked, parsed, processing, payload_schema)
        slots = parsed.slots
        if isinstance(slots, SlotRange):
            self._engine = ElasticEngine(spark, plan, slots, parsed.target_wait_s)
        else:
            self._engine = SparkEngine(spark, plan, slots)
