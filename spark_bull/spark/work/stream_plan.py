"""The plan of a worker with the engine `stream`: what its query reads, computes and settles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from spark_bull.core.errors import expected
from spark_bull.core.options.parse import as_options, as_texts
from spark_bull.core.options.table import ClaimOptions, SettleOptions, WorkOptions
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.tracing.tracer import TracerSource
from spark_bull.run.claims.batch_size import LEAST
from spark_bull.run.job.outcome_policy import BackoffStrategy
from spark_bull.run.worker.kinds import Processor, is_udf
from spark_bull.run.worker.worker_options import Processing
from spark_bull.spark.platform.jvm import is_remote, parallelism
from spark_bull.spark.schemas import CLAIM_SCHEMA
from spark_bull.spark.work.udf_runner import PayloadSchema, frame_schema, udf_runner
from spark_bull.spark.work.udf_transform import INPUT, UdfTransformation

#: What makes outcomes of claimed jobs; a UDF does so in the Python process that settles them.
Transformation = Callable[[DataFrame], DataFrame] | UdfTransformation
#: A task for fewer jobs takes longer to start than to run. Not applied if `slots` is given.
_MIN_ROWS: Final = 1_000


@dataclass(frozen=True)
class StreamPlan:
    """The configuration of a query. claim, settle: options of the read and the write, including the connection.

    lock_ms: duration of the jobs' locks. strategy: computes backoff of types that are not built in. checkpoint: the
    user's checkpoint folder; None: a temporary one. tracer: see `spark_bull.core.tracing.tracer.spans_of`.
    """

    handle: QueueHandle
    reader: str
    claim: Mapping[str, str]
    settle: Mapping[str, str]
    transform: Transformation
    payload: StructType | None
    lock_ms: int
    strategy: BackoffStrategy | None = None
    checkpoint: str | None = None
    tracer: TracerSource = None

    @property
    def columns(self) -> StructType:
        """The columns of claimed jobs that are read: all for a function of DataFrames, which may use any."""
        if not isinstance(self.transform, UdfTransformation):
            return CLAIM_SCHEMA
        used = {*INPUT, "deferredFailure", *(("name", "opts") if self.tracer else ())}
        return StructType([field for field in CLAIM_SCHEMA if field.name in used])


def plan_stream(
    spark: SparkSession,
    worker: str,
    handle: QueueHandle,
    arguments: Mapping[str, Any],
    options: WorkOptions,
    processing: Processing,
    payload_schema: PayloadSchema,
) -> StreamPlan:
    """Returns the plan of the query of a worker. arguments: those that are options, as the user gave them.

    Raises OptionError for a processor that the query cannot call.
    """
    transform, payload = _transformation_of(processing.processor, payload_schema, options, handle)
    slots = options.slots if isinstance(options.slots, int) else parallelism(spark)
    # Batches are split into `slots` tasks unless they are small.
    rows = -(-(options.max_jobs_per_trigger or LEAST) // slots)
    reading = {
        "queue": handle.keys.queue,
        "readerId": worker,
        "workerName": options.worker_name,
        "rowsPerPartition": rows if "slots" in options.given else max(_MIN_ROWS, rows),
        "maxPartitions": slots,
        "settledInBatch": True,
    }
    if is_remote(spark):
        arguments = _with_connection(arguments, handle)
    return StreamPlan(
        handle,
        worker,
        as_options(arguments, ClaimOptions) | as_texts(reading),
        as_options(arguments, SettleOptions) | {"queue": handle.keys.queue},
        transform,
        payload,
        options.lock_ms,
        processing.backoff_strategy,
        options.checkpoint,
        processing.tracer,
    )


def _with_connection(arguments: Mapping[str, Any], handle: QueueHandle) -> dict[str, Any]:
    """Adds the URL and the password that are in the environment of this process: a Connect server has another one."""
    settings = handle.connection.settings
    kept = {name: value for name, value in arguments.items() if name != "shard_urls"}
    return {**kept, "url": settings.url, "password": settings.password}


def _transformation_of(
    processor: Processor | Mapping[str, Processor],
    payload_schema: PayloadSchema,
    options: WorkOptions,
    handle: QueueHandle,
) -> tuple[Transformation, StructType | None]:
    """Returns the transformation of the micro-batches and the schema of their payloads. Raises OptionError."""
    if isinstance(payload_schema, Mapping):
        raise expected("payload_schema", "one schema, as there is one processor", payload_schema)
    if is_udf(processor):
        runner = udf_runner(processor, payload_schema, options.timeout_ms)
        return UdfTransformation(handle, runner, options.chunk_size or 0), None
    if not callable(processor):
        raise expected("processor", "a function DataFrame -> DataFrame, or a UDF", processor)
    return processor, frame_schema(payload_schema)
