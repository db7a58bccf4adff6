"""The plan of a worker with the engine `loop`: what its slots do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import SparkSession

from spark_bull.errors import OptionError, expected
from spark_bull.options.parse import Options
from spark_bull.queue.core.claim_settings import ClaimSettings, default_worker
from spark_bull.queue.core.handle import QueueHandle
from spark_bull.spark.process.frame_runner import FrameRunner
from spark_bull.spark.process.udf_runner import frame_schema, is_udf, udf_runner
from spark_bull.spark.process.worker_options import Processing, Processor, takes_frames
from spark_bull.worker.job.job_options import keep_rule
from spark_bull.worker.job.job_runner import FunctionRunner, Runner
from spark_bull.worker.job.outcome_policy import OutcomePolicy
from spark_bull.worker.slot.slot_plan import SlotPlan, SlotQueuePlan
from spark_bull.worker.slot.start_limit import start_limit
from spark_bull.worker.slot.unsettled import SCRIPT_JOBS

#: Default sizes of chunks. A script for more jobs blocks Redis for longer. A call of a UDF has fixed costs.
_FUNCTION_CHUNK: Final = 100
_UDF_CHUNK: Final = SCRIPT_JOBS
_FRAME_CHUNK: Final = 10_000
#: The same with a timeout: each job that exceeds it can hold up the others of its chunk for so long.
_TIMED_CHUNK: Final = 1_000
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
    runner = _runner_of(spark, processing, options)

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
        OutcomePolicy(*keep, processing.backoff_strategy),
        options["concurrency"],
        min_chunk=options["minChunk"],
        chunk_wait_ms=options["chunkWaitMs"],
        tracer=processing.tracer,
        setup=processing.setup,
        env=processing.env,
        max_stalled=options["maxStalled"],
        batch_bytes=_BATCH_BYTES if isinstance(runner, FrameRunner) else 0,
    )


def largest_chunk(options: Options, processor: Processor | Mapping[str, Processor]) -> int:
    """Returns the largest number of jobs per chunk of the engine `loop`; by default at least `min_chunk`."""
    if takes_frames(processor):
        default = _TIMED_CHUNK if options["timeoutMs"] else _FRAME_CHUNK
        return int(options["maxJobsPerTrigger"] or options["chunkSize"] or default)
    default = max(_UDF_CHUNK, options["minChunk"]) if is_udf(processor) else _FUNCTION_CHUNK
    return int(options["chunkSize"] or default)


def _runner_of(spark: SparkSession, processing: Processing, options: Options) -> Runner:
    """Returns the runner of a processor in a slot. Raises OptionError for what can't be one."""
    processor, payload_schema, timeout_ms = processing.processor, processing.payload_schema, options["timeoutMs"]
    if is_udf(processor):
        if options["concurrency"] > 1:
            raise OptionError("`concurrency` has no effect on a UDF, which gets chunks: set `slots` or `chunk_size`")
        return udf_runner(processor, payload_schema, timeout_ms)
    if takes_frames(processor):
        if options["concurrency"] > 1:
            raise OptionError("`concurrency` has no effect on a function of DataFrames: set `slots`")
        return FrameRunner(spark, processor, frame_schema(payload_schema), timeout_ms)
    if payload_schema is not None:
        raise OptionError(
            "`payload_schema` is for UDFs and functions of DataFrames; a function of a job gets parsed JSON as "
            "job.data: leave it out"
        )
    if isinstance(processor, Mapping):
        _check_by_name(processor)
    elif not callable(processor):
        raise expected("processor", "a function of a job, functions by name, or a UDF", processor)
    return FunctionRunner(processor, timeout_ms, options["extendTimeoutOnProgress"])


def _check_by_name(processors: Mapping[str, Processor]) -> None:
    if not processors:
        raise expected("processor", "a mapping of job names to functions", dict(processors))
    for name, function in processors.items():
        if is_udf(function) or takes_frames(function):
            kind = "a UDF" if is_udf(function) else "a function of DataFrames"
            raise OptionError(
                f"expected `processor[{name!r}]` to be a function of a job, got {kind}, which gets jobs of all names: "
                "branch on the name there, or give these jobs a queue and a Worker of their own"
            )
        if not isinstance(name, str) or not callable(function):
            raise expected(f"processor[{name!r}]", "a function of a job, under the name of the jobs or '*'", function)
