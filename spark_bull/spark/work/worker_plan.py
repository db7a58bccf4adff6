"""The plan of a Worker: what its slots do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from pyspark.sql import SparkSession

from spark_bull.core.errors import OptionError
from spark_bull.core.options.table import WorkOptions
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.run.job.job_runner import ANY_NAME, FunctionRunner, Runner
from spark_bull.run.job.named_runner import NamedRunner
from spark_bull.run.slot.queue_calls import SCRIPT_JOBS
from spark_bull.run.slot.slot_plan import SlotPlan
from spark_bull.run.worker.processors import Processor, by_name, check_processors, is_udf, kind_of, kinds_of
from spark_bull.run.worker.slots_plan import FUNCTION_CHUNK, OpenedQueue, plan_slots
from spark_bull.run.worker.worker_options import Processing
from spark_bull.spark.work.frame_runner import FrameRunner, frame_runners
from spark_bull.spark.work.udf_runner import PayloadSchema, UdfRunner, frame_schema, udf_runner
from spark_bull.spark.work.udf_transform import INPUT, OUTPUT, UdfTransformation

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
            "`payload_schema` is for UDFs and functions of DataFrames; a function of a job gets parsed JSON as "
            "job.data: leave it out"
        )
    if isinstance(schema, Mapping) and (others := schema.keys() - batched):
        raise OptionError(
            f"expected `payload_schema` to name UDFs and functions of DataFrames in `processor` "
            f"({', '.join(sorted(batched))}), got: {', '.join(sorted(map(str, others)))}"
        )
