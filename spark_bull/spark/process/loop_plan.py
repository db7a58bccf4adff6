"""The plan of a worker with the engine `loop`: what its slots do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.types import DataType

from spark_bull.errors import OptionError, expected
from spark_bull.options.parse import Options
from spark_bull.queue.core.claim_settings import ClaimSettings, default_worker
from spark_bull.queue.core.handle import QueueHandle
from spark_bull.spark.process.frame_runner import FrameRunner, frame_runners
from spark_bull.spark.process.kinds import Processor, by_name, is_udf, kind_of, kinds_of
from spark_bull.spark.process.udf_runner import UdfRunner, frame_schema, udf_runner
from spark_bull.spark.process.udf_transform import INPUT, OUTPUT, UdfTransformation
from spark_bull.spark.process.worker_options import Processing
from spark_bull.worker.job.job_options import keep_rule
from spark_bull.worker.job.job_runner import ANY_NAME, FunctionRunner, Runner
from spark_bull.worker.job.named_runner import NamedRunner
from spark_bull.worker.job.outcome_policy import OutcomePolicy
from spark_bull.worker.slot.slot_plan import SlotPlan, SlotQueuePlan
from spark_bull.worker.slot.start_limit import start_limit
from spark_bull.worker.slot.unsettled import SCRIPT_JOBS

#: Default sizes of chunks. A script for more jobs blocks Redis for longer. A call of a UDF has fixed costs.
_FUNCTION_CHUNK: Final = 100
_UDF_CHUNK: Final = SCRIPT_JOBS
_FRAME_CHUNK: Final = 10_000
#: The same for functions of DataFrames beside others, whose jobs wait for the whole chunk.
_MIXED_CHUNK: Final = 1_000
#: The same with a timeout: each job that exceeds it can hold up the others of its chunk for so long.
_TIMED_CHUNK: Final = 1_000
_FRAMES_AT_ONCE: Final = "a function of DataFrames: set `slots`"
#: Size of the payloads at which a DataFrame of jobs ends, as they are kept in memory.
_BATCH_BYTES: Final = 64 << 20


def plan_loop(
    spark: SparkSession,
    worker: str,
    handles: Sequence[QueueHandle],
    weights: Sequence[int],
    options: Options,
    processing: Processing,
) -> SlotPlan:
    """Returns the plan of the slots of a worker. Raises OptionError for a processor that they cannot call."""
    runner = _runner_of(spark, handles[0], processing, options)

    def queue_plan(handle: QueueHandle, weight: int) -> SlotQueuePlan:
        settings = ClaimSettings(
            sender=worker,
            lock_ms=options["lockMs"],
            worker=options["workerName"] or default_worker(worker),
            limiter=options["limiter"],
            group=options["group"],
            max_metrics=options["metricsMinutes"],
            control=handle.keys.control(worker),
            counters=handle.keys.counters(worker),
        )
        return SlotQueuePlan(handle, settings, weight, start_limit(handle, options["maxStarted"]))

    keep = keep_rule(options["removeOnComplete"]), keep_rule(options["removeOnFail"])
    return SlotPlan(
        tuple(map(queue_plan, handles, weights)),
        worker,
        runner,
        largest_chunk(options, processing.processor),
        OutcomePolicy(*keep, processing.backoff_strategy, options["retry"]),
        options["concurrency"],
        min_chunk=options["minChunk"],
        chunk_wait_ms=options["chunkWaitMs"],
        tracer=processing.tracer,
        meter=processing.meter,
        setup=processing.setup,
        env=processing.env,
        max_stalled=options["maxStalled"],
        batch_bytes=_BATCH_BYTES if frame_runners(runner) else 0,
    )


def largest_chunk(options: Options, processor: Processor | Mapping[str, Processor]) -> int:
    """Returns the largest number of jobs per chunk of the engine `loop`; by default at least `min_chunk`."""
    kinds = kinds_of(processor)
    if kinds == {"frames"}:
        default = _TIMED_CHUNK if options["timeoutMs"] else _FRAME_CHUNK
    elif "frames" in kinds:
        default = _MIXED_CHUNK
    else:
        default = _FUNCTION_CHUNK if kinds == {"function"} else _UDF_CHUNK
    return int(options["maxJobsPerTrigger"] or options["chunkSize"] or max(default, options["minChunk"]))


def _runner_of(spark: SparkSession, handle: QueueHandle, processing: Processing, options: Options) -> Runner:
    """Returns the runner of the processors in a slot. Raises OptionError for what can't be one."""
    processors = by_name(processing.processor)
    kinds = kinds_of(processors)
    if "function" not in kinds and options["concurrency"] > 1:
        what = "a UDF, which gets chunks: set `slots` or `chunk_size`"
        raise OptionError(f"`concurrency` has no effect on {what if kinds == {'UDF'} else _FRAMES_AT_ONCE}")
    _check_processors(processing)
    on_driver, timeout_ms = "frames" in kinds, options["timeoutMs"]
    functions, batches = dict[str, Processor](), dict[str, Runner]()
    for name, processor in processors.items():
        schema = _schema_of(processing, name)
        if is_udf(processor):
            runner = udf_runner(processor, schema, timeout_ms)
            batches[name] = _in_queries(spark, handle, runner) if on_driver else runner
        elif kind_of(processor) == "frames":
            batches[name] = FrameRunner(spark, processor, frame_schema(schema), timeout_ms)
        else:
            functions[name] = processor
    if not isinstance(processing.processor, Mapping) and batches:
        return batches[ANY_NAME]
    given = functions if isinstance(processing.processor, Mapping) else processing.processor
    of_jobs = FunctionRunner(given, timeout_ms, options["extendTimeoutOnProgress"], others=tuple(batches))
    return NamedRunner(of_jobs, batches, options["concurrency"], not on_driver) if batches else of_jobs


def _in_queries(spark: SparkSession, handle: QueueHandle, runner: UdfRunner) -> FrameRunner:
    """Runs a UDF in the tasks of queries, as the slot is on the driver. The timeout is that of its calls."""
    udf = UdfTransformation(handle, runner)
    return FrameRunner(spark, lambda jobs: jobs.select(*INPUT).mapInArrow(udf, OUTPUT), None, 0)


def _schema_of(processing: Processing, name: str) -> str | DataType | None:
    given = processing.payload_schema
    return given.get(name) if isinstance(given, Mapping) else given


def _check_processors(processing: Processing) -> None:
    """Raises OptionError for what is no processor, and for schemas without one."""
    processors, schema = by_name(processing.processor), processing.payload_schema
    if not isinstance(processing.processor, Mapping) and not callable(processing.processor):
        raise expected("processor", "a function of a job, functions by name, or a UDF", processing.processor)
    if not processors:
        raise expected("processor", "a mapping of job names to functions", dict(processors))
    for name, function in processors.items():
        if not isinstance(name, str) or not callable(function):
            raise expected(f"processor[{name!r}]", "a processor, under the name of the jobs or '*'", function)
    batched = {name for name, function in processors.items() if kind_of(function) != "function"}
    if schema is not None and not batched:
        raise OptionError(
            "`payload_schema` is for UDFs and functions of DataFrames; a function of a job gets parsed JSON as "
            "job.data: leave it out"
        )
    if isinstance(schema, Mapping) and (others := schema.keys() - batched):
        raise OptionError(
            f"expected the names in `payload_schema` to be those of UDFs and functions of DataFrames in `processor` "
            f"({', '.join(sorted(batched))}), got: {', '.join(sorted(map(str, others)))}"
        )
