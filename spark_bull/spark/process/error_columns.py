"""Converts an exception of a processor to columns of mode=settle."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, Final

from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType, TimestampType

from spark_bull.error_text import reason_of, trace_of
from spark_bull.errors import DelayedError, RateLimitError, ReturnedError, UnrecoverableError, WaitingForChildren

ERROR_SCHEMA: Final = StructType(
    [
        StructField("error", StringType()),
        StructField("stacktrace", StringType()),
        StructField("unrecoverable", BooleanType()),
        StructField("delay", LongType()),
        StructField("runAt", TimestampType()),
        StructField("rateLimit", LongType()),
        StructField("waitForChildren", BooleanType()),
    ]
)


def error_columns(error: BaseException, reason: str = "", stack: str = "") -> dict[str, Any]:
    """Returns the columns of ERROR_SCHEMA for an error. reason, stack: texts to store; default: those of the error."""
    try:
        if isinstance(error, RateLimitError):
            return {"rateLimit": error.rest()}
        if isinstance(error, ReturnedError):
            return {"rateLimit": 0}
        if isinstance(error, DelayedError) and error.until is None:
            return {"delay": error.due(0)}
        if isinstance(error, DelayedError):
            return {"runAt": datetime.fromtimestamp(error.due(0) / 1000, timezone.utc)}
        if isinstance(error, WaitingForChildren):
            return {"waitForChildren": True}
    except (AttributeError, TypeError, ValueError) as incomplete:  # A subclass has changed its attributes.
        error = incomplete
    return {
        "error": reason or reason_of(error),
        "stacktrace": stack or trace_of(error),
        "unrecoverable": isinstance(error, UnrecoverableError),
    }
