"""The columns that a call adds to a DataFrame, as Arrow arrays."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from pyspark.sql.types import DataType, StringType, StructField, StructType

from spark_bull.error_text import sendable
from spark_bull.errors import OptionError
from spark_bull.queue.call.caller import Outcome
from spark_bull.spark.json.payload import WrongPayload, payload_array
from spark_bull.spark.platform.arrow import to_arrow_type
from spark_bull.spark.platform.lazy_arrow import pa

RESULT: Final = "result"
#: The columns beside RESULT.
_OTHERS: Final = {"error": StringType(), "jobId": StringType()}


def output_schema(schema: StructType, result: DataType) -> StructType:
    """The columns of a DataFrame and of the outcomes. Raises OptionError for a DataFrame that has one of these."""
    added = {RESULT: result, **_OTHERS}
    taken = {name.lower() for name in added}
    for name in schema.names:
        if name.lower() in taken:
            raise OptionError(f"expected no column `{name}`: call() adds {', '.join(added)}; rename it or drop it")
    return StructType([*schema.fields, *(StructField(name, kind) for name, kind in added.items())])


class Parsed(NamedTuple):
    """Outcomes as a column RESULT, and an error for each that is none."""

    values: pa.Array
    errors: list[str | None]


def parsed(outcomes: Sequence[Outcome], result: DataType) -> Parsed:
    """The values of outcomes as a type; one that does not match it is an error."""
    errors = [outcome.error for outcome in outcomes]
    values = [outcome.value and json.loads(outcome.value) for outcome in outcomes]
    if isinstance(result, StringType):
        texts = [_text(value, outcome.value) for value, outcome in zip(values, outcomes, strict=True)]
        return Parsed(pa.array(texts, pa.string()), errors)
    kind = to_arrow_type(result)
    try:
        return Parsed(payload_array(values, kind), errors)
    except WrongPayload:
        for position, value in enumerate(values):
            try:
                payload_array([value], kind)
            except WrongPayload as error:
                values[position], errors[position] = None, f"return_schema: {error}"
        return Parsed(payload_array(values, kind), errors)


def _text(value: Any, json_text: bytes | None) -> str | None:
    """As get_json_object of Spark: a string without quotes, any other value as JSON.

    Unpaired surrogates of a string, which UTF-8 lacks, become U+FFFD.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return sendable(value, sys.maxsize)
    return (json_text or b"").decode("utf-8", "replace")


def with_outcomes(rows: pa.RecordBatch, outcomes: Parsed, job_ids: Sequence[str]) -> pa.RecordBatch:
    """Rows with the columns of their outcomes."""
    others = [pa.array(outcomes.errors, pa.string()), pa.array(job_ids, pa.string())]
    names = [*rows.schema.names, RESULT, *_OTHERS]
    return pa.RecordBatch.from_arrays([*rows.columns, outcomes.values, *others], names=names)
