"""call: the services behind a queue as a transformation of a DataFrame."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from pyspark.sql import DataFrame
from pyspark.sql.functions import spark_partition_id
from pyspark.sql.types import DataType, StructType

from spark_bull.core.dialects.encode.codec import check_defaults, defaults_of
from spark_bull.core.errors import OptionError, did_you_mean, expected
from spark_bull.core.options.arguments import CallArguments, JobDefaults, with_options
from spark_bull.core.options.parse import parse_arguments
from spark_bull.core.options.table import QueueOptions
from spark_bull.core.queue.handle.handle import open_handle
from spark_bull.spark.call.task import PARTITION, CallPlan, output_schema
from spark_bull.spark.dispatch.rows import call_rows
from spark_bull.spark.json.json_values import check_type
from spark_bull.spark.json.types import parse_type
from spark_bull.spark.platform.requirements import ensure_python

if TYPE_CHECKING:
    from typing_extensions import Unpack

ON_ERROR: Final = ("column", "fail", "drop")
MAX_IN_FLIGHT: Final = 100_000
#: Properties of jobs that a call sets itself, or that a child can't have.
_OWN: Final = ("deduplication", "delivery", "remove_on_complete", "remove_on_fail")
_OWN_OPTS: Final = ("deduplication", "jobId", "parent", "removeOnComplete", "removeOnFail")


@with_options(CallArguments, QueueOptions)
def call(
    df: DataFrame,
    queue: str,
    *,
    return_schema: str | DataType = "string",
    timeout_ms: int = 600_000,
    in_flight: int = 1_000,
    on_error: str = "column",
    keep_ms: int = 600_000,
    job: JobDefaults | None = None,
    details: bool = False,
    **options: Unpack[CallArguments],
) -> DataFrame:
    """Adds a job for each row of a DataFrame, and gives the rows back with the results of their jobs.

        answers = spark_bull.call(questions, "translate", return_schema="text STRING, score DOUBLE")

    Any worker of the queue may process the jobs, in Node or in Spark. The payload is the column `data`, or else the
    whole row. Rows come back as their jobs end, in any order, while others are still computed; each action on the
    result calls again, unless it is cached. Attempts of one task share their jobs.

    Parameters:
      df: the rows, of a batch or a stream.
      queue: name of the queue.
      return_schema: type of the results, such as "text STRING, score DOUBLE". "string": the text of a string, any other
        value as JSON.
      timeout_ms: how long a job may take from when it is added, ms. One that takes longer is removed.
      in_flight: maximum number of jobs of each task that have not ended, at most 100,000.
      on_error: what happens to rows whose job fails, takes too long or is removed, or whose result does not match.
        "column" keeps them, with the reason in `error`; "drop" leaves them out; "fail" fails the task.
      keep_ms: how long results are kept after the end of a task, for when Spark repeats it, ms; at least a minute.
      job: properties of all jobs, such as {"name": "translate", "attempts": 3, "priority": 1}.
      details: whether the columns `attemptsMade` and `durationMs` are added.
      options: where the queue is, how payloads and results are kept, and which events are written; payloads are not
        stored elsewhere.

    Returns:
      The rows with the columns `result`, `error` (NULL for a job that has completed) and `jobId`. With `details`, also
      `attemptsMade`, as the library of the queue counts them, and `durationMs`, from the last start to the end, ms.

    Raises:
      OptionError: for an invalid argument, or columns that can't be a payload.
      ConnectionLost: if Redis cannot be reached.
      SparkBullError: if PYSPARK_PYTHON names a Python that lacks required packages; with a local master only.
    """
    ensure_python()
    plan = call_plan(
        df.schema,
        queue,
        return_schema=return_schema,
        timeout_ms=timeout_ms,
        in_flight=in_flight,
        on_error=on_error,
        keep_ms=keep_ms,
        job=job,
        details=details,
        **options,
    )
    return df.select("*", spark_partition_id().alias(PARTITION)).mapInArrow(plan, plan.columns)


def call_plan(
    schema: StructType,
    queue: str,
    *,
    return_schema: str | DataType = "string",
    timeout_ms: int = 600_000,
    in_flight: int = 1_000,
    on_error: str = "column",
    keep_ms: int = 600_000,
    job: Mapping[str, Any] | None = None,
    details: bool = False,
    **options: Any,
) -> CallPlan:
    """What each task of a call does, for rows with this schema; see `call`."""
    for name, value, least in (("timeout_ms", timeout_ms, 1), ("in_flight", in_flight, 1), ("keep_ms", keep_ms, 0)):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise expected(name, f"an integer >= {least}", value)
    if in_flight > MAX_IN_FLIGHT:
        raise expected("in_flight", f"an integer from 1 to {MAX_IN_FLIGHT:,}", in_flight)
    if not isinstance(details, bool):
        raise expected("details", "True or False", details)
    if on_error not in ON_ERROR:
        raise expected("on_error", f"one of {', '.join(ON_ERROR)}", on_error)
    _check_options(options)
    given = dict(job or {})
    _check_job(given)
    kind = return_schema if isinstance(return_schema, DataType) else parse_type("return_schema", return_schema)
    check_type("return_schema", kind)
    parsed = parse_arguments({**options, **given}, QueueOptions)
    handle = open_handle(parsed, queue)
    defaults = defaults_of(parsed)
    handle.dialect.check_work(queue)
    check_defaults(handle.dialect, defaults)
    return CallPlan(
        handle=handle,
        rows=call_rows(schema),
        columns=output_schema(schema, kind, details=details),
        call_id=uuid4().hex,
        shared_id=_shared_id(handle.keys.base, given, schema),
        result=kind,
        on_error=on_error,
        timeout_ms=timeout_ms,
        in_flight=in_flight,
        keep_ms=keep_ms,
        details=details,
        defaults=defaults,
    )


def _check_options(options: Mapping[str, Any]) -> None:
    """Raises OptionError for an option that a call doesn't have, also if it is one of a queue."""
    known = CallArguments.__annotations__
    for name in options:
        if name in JobDefaults.__annotations__:
            raise OptionError(f"unknown option `{name}` of call(): give properties of its jobs in `job`")
        if name not in known:
            raise OptionError(f"unknown option `{name}` of call(){did_you_mean(name, known)}")


def _check_job(job: Mapping[str, Any]) -> None:
    """Raises OptionError for a property that the jobs of a call can't have."""
    allowed = [name for name in JobDefaults.__annotations__ if name not in _OWN]
    for name in job:
        if name not in allowed:
            raise OptionError(
                f"expected the properties of `job` to be some of {', '.join(allowed)}, got: {name!r}"
                f"{did_you_mean(name, allowed)}"
            )
    opts = job.get("opts")
    for name in opts if isinstance(opts, Mapping) else ():
        if name in _OWN_OPTS:
            raise OptionError(f"expected no `{name}` in `opts` of `job`, as call() sets it: leave it out")


def _shared_id(base: str, job: Mapping[str, Any], schema: StructType) -> str:
    """The same for the same call in the next program that runs a stream."""
    text = json.dumps([base, job, schema.json()], sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
