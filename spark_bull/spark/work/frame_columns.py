"""The columns of DataFrames of jobs: payloads, parsed with the schema of a worker, and errors of a processor."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType, TimestampType

from spark_bull.core.error_text import reason_of, trace_of
from spark_bull.run.job.outcomes import outcome_of
from spark_bull.spark.json.json_text import MAX_SHOWN

_PARSED: Final = "__payload"
_CORRUPT: Final = "__corrupt"


def parsed_payloads(jobs: DataFrame, payload: StructType) -> DataFrame:
    """The jobs whose payload matches the schema, with `data` as a STRUCT."""
    data = f.col(_PARSED).dropFields(_CORRUPT)
    return _parsed(jobs, payload).where(_is_valid()).withColumn("data", data).drop(_PARSED)


def invalid_payloads(jobs: DataFrame, payload: StructType) -> DataFrame:
    """The outcomes of the other jobs, which fail; those whose payload is not JSON without a further attempt."""
    why = f.concat(
        f.lit(f"expected the payload to be JSON that matches {payload.simpleString()}, got: "),
        f.coalesce(f.substring("data", 1, MAX_SHOWN), f.lit("nothing")),
    )
    is_damaged = f.try_parse_json("data").isNull()
    invalid = _parsed(jobs, payload).where(~_is_valid()).withColumn("error", why)
    return invalid.withColumn("unrecoverable", is_damaged).select("id", "token", "error", "unrecoverable")


def _parsed(jobs: DataFrame, payload: StructType) -> DataFrame:
    schema = StructType([*payload, StructField(_CORRUPT, StringType())])
    return jobs.withColumn(_PARSED, f.from_json("data", schema, {"columnNameOfCorruptRecord": _CORRUPT}))


def _is_valid() -> Column:
    """Whether the payload matches the schema."""
    return f.coalesce(f.col(_PARSED).isNotNull() & f.col(f"{_PARSED}.{_CORRUPT}").isNull(), f.lit(False))


ERROR_SCHEMA: Final = StructType(
    [
        StructField("error", StringType()),
        StructField("stacktrace", StringType()),
        StructField("unrecoverable", BooleanType()),
        StructField("delay", LongType()),
        StructField("runAt", TimestampType()),
        StructField("rateLimit", LongType()),
        StructField("groupRateLimit", LongType()),
        StructField("waitForChildren", BooleanType()),
    ]
)


def error_columns(error: BaseException, reason: str = "", stack: str = "") -> dict[str, Any]:
    """Returns the columns of ERROR_SCHEMA for an error. reason, stack: texts to store; default: the error's."""
    ending = outcome_of(error)
    if ending.kind == "returned":
        return {"rateLimit": ending.ms}
    if ending.kind == "rested":
        return {"groupRateLimit": ending.ms}
    if ending.kind == "delayed by":
        return {"delay": ending.ms}
    if ending.kind == "delayed until":
        return {"runAt": datetime.fromtimestamp(ending.ms / 1000, timezone.utc)}
    if ending.kind == "waiting for children":
        return {"waitForChildren": True}
    error = ending.error or error
    return {
        "error": reason or reason_of(error),
        "stacktrace": stack or trace_of(error),
        "unrecoverable": ending.kind == "failed for good",
    }
