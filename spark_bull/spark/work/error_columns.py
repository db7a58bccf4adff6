"""Converts an exception of a processor to columns of mode=settle."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, Final

from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType, TimestampType

from spark_bull.core.error_text import reason_of, trace_of
from spark_bull.run.job.endings import outcome_of

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
