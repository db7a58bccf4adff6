"""Worker: processes the jobs of a queue on the executors; and its plan: what its slots do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark.sql import SparkSession

from spark_bull.core.error_text import short_errors
from spark_bull.core.errors import OptionError
from spark_bull.core.model.guards import Guard
from spark_bull.core.model.limits import SlotRange
from spark_bull.core.options.arguments import WorkerArguments, connection_of, with_options
from spark_bull.core.options.table import WorkOptions
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.tracing.tracer import MeterSource, TracerSource
from spark_bull.run.job.job_runner import ANY_NAME, FunctionRunner, Runner
from spark_bull.run.job.named_runner import NamedRunner
from spark_bull.run.job.outcome_policy import BackoffStrategy
from spark_bull.run.slot.queue_calls import SCRIPT_JOBS
from spark_bull.run.slot.slot_plan import SlotPlan
from spark_bull.run.slot.slot_state import Setup
from spark_bull.run.worker.base_worker import BaseWorker
from spark_bull.run.worker.slots_plan import FUNCTION_CHUNK, OpenedQueue, opened, plan_slots, worked_queues
from spark_bull.run.worker.worker_options import (
    Processing,
    Processor,
    by_name,
    check_processors,
    is_udf,
    kind_of,
    kinds_of,
    processing_of,
    worker_options,
)
from spark_bull.spark.work.elastic_engine import ElasticEngine
from spark_bull.spark.work.frame_runner import FrameRunner, frame_runners
from spark_bull.spark.work.spark_engine import SparkEngine
from spark_bull.spark.work.udf_runner import PayloadSchema, UdfRunner, frame_schema, udf_runner
from spark_bull.spark.work.udf_transform import INPUT, OUTPUT, UdfTransformation

if TYPE_CHECKING:
    from typing_extensions import Unpack


#: Default sizes of chunks. A call of a UDF has fixed costs.
_UDF_CHUNK: Final = SCRIPT_JOBS
_FRAME_CHUNK: Final = 10_000
#: The same for functions of DataFrames beside others, whose jobs wait for the whole chunk.
_MIXED_CHUNK: Final = 1_000
#: The same with a timeout: each job that exceeds it can hold up the others of its chunk for so long.
_TIMED_CHUNK: Final = 1_000
_FRAMES_AT_ONCE: Final = "a function of DataFrames: set `slots`"
#: Size of the payloads at which a DataFrame of jobs ends, as they are kept in memory.
_BATCH_BYTES: Final = 64 << 20


def plan_worker(
    spark: SparkSession,
    worker: str,
    queues: Sequence[OpenedQueue],
    options: WorkOptions,
    processing: Processing,
    payload_schema: PayloadSchema,
) -> SlotPlan:
    """Returns the plan of the slots of a worker. Raises OptionError for a processor that they cannot call."""
    runner = _runner_of(spark, queues[0].handle, processing.processor, payload_schema, options)
    plan = plan_slots(worker, queues, options, processing, runner, largest_chunk(options, processing.processor))
    return replace(plan, batch_bytes=_BATCH_BYTES if frame_runners(runner) else 0)


def largest_chunk(options: WorkOptions, processor: Processor | Mapping[str, Processor]) -> int:
    """Returns the largest number of jobs per chunk; by default at least `min_chunk`."""
    kinds = kinds_of(processor)
    if kinds == {"frames"}:
        default = _TIMED_CHUNK if options.timeout_ms else _FRAME_CHUNK
    elif "frames" in kinds:
        default = _MIXED_CHUNK
    else:
        default = FUNCTION_CHUNK if kinds == {"function"} else _UDF_CHUNK
    return options.chunk_size or max(default, options.min_chunk)


def _runner_of(
    spark: SparkSession,
    handle: QueueHandle,
    processor: Processor | Mapping[str, Processor],
    payload_schema: PayloadSchema,
    options: WorkOptions,
) -> Runner:
    """Returns the runner of the processors in a slot. Raises OptionError for what can't be one."""
    processors = by_name(processor)
    kinds = kinds_of(processors)
    if "function" not in kinds and options.concurrency > 1:
        what = "a UDF, which gets chunks: set `slots` or `chunk_size`"
        raise OptionError(f"`concurrency` has no effect on {what if kinds == {'UDF'} else _FRAMES_AT_ONCE}")
    check_processors(processor)
    _check_schema(payload_schema, processors)
    on_driver, timeout_ms = "frames" in kinds, options.timeout_ms
    functions, batches = dict[str, Processor](), dict[str, Runner]()
    for name, one in processors.items():
        schema = payload_schema.get(name) if isinstance(payload_schema, Mapping) else payload_schema
        if is_udf(one):
            runner = udf_runner(one, schema, timeout_ms)
            batches[name] = _in_queries(spark, handle, runner) if on_driver else runner
        elif kind_of(one) == "frames":
            batches[name] = FrameRunner(spark, one, frame_schema(schema), timeout_ms)
        else:
            functions[name] = one
    if not isinstance(processor, Mapping) and batches:
        return batches[ANY_NAME]
    given = functions if isinstance(processor, Mapping) else processor
    of_jobs = FunctionRunner(given, timeout_ms, options.extend_timeout_on_progress, others=tuple(batches))
    return NamedRunner(of_jobs, batches, options.concurrency, not on_driver) if batches else of_jobs


def _in_queries(spark: SparkSession, handle: QueueHandle, runner: UdfRunner) -> FrameRunner:
    """Runs a UDF in the tasks of queries, as the slot is on the driver. The timeout counts for its calls."""
    udf = UdfTransformation(handle, runner)
    return FrameRunner(spark, lambda jobs: jobs.select(*INPUT).mapInArrow(udf, OUTPUT), None, 0)


def _check_schema(schema: PayloadSchema, processors: Mapping[str, Processor]) -> None:
    """Raises OptionError for schemas without a processor."""
    batched = {name for name, function in processors.items() if kind_of(function) != "function"}
    if schema is not None and not batched:
        raise OptionError(
            "`payload_schema` is for UDFs and functions of DataFrames, whose parameter is annotated as a DataFrame; a "
            "function of a job gets parsed JSON as job.data: leave it out"
        )
    if isinstance(schema, Mapping) and (others := schema.keys() - batched):
        raise OptionError(
            f"expected `payload_schema` to name UDFs and functions of DataFrames in `processor` "
            f"({', '.join(sorted(batched))}), got: {', '.join(sorted(map(str, others)))}"
        )


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
