"""The columns that a call adds to a DataFrame, as Arrow arrays."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructField, StructType

from spark_bull.core.dialects.fields import NO_VALUE
from spark_bull.core.errors import OptionError
from spark_bull.core.model.job_json import damaged_field
from spark_bull.core.queue.call.flight import Ended
from spark_bull.core.well_formed import well_formed, well_formed_json
from spark_bull.spark.json.json_values import WrongPayload, payload_array
from spark_bull.spark.platform.arrow import to_arrow_type
from spark_bull.spark.platform.lazy_arrow import pa

RESULT: Final = "result"
#: The columns beside RESULT.
_OTHERS: Final = {"error": StringType(), "jobId": StringType()}
#: The columns of details.
_DETAILS: Final = {"attemptsMade": IntegerType(), "durationMs": LongType()}


def output_schema(schema: StructType, result: DataType, *, details: bool) -> StructType:
    """The columns of a DataFrame and of the outcomes. Raises OptionError for a DataFrame that has one of these."""
    added = {RESULT: result, **_OTHERS, **(_DETAILS if details else {})}
    taken = {name.lower() for name in added}
    for name in schema.names:
        if name.lower() in taken:
            raise OptionError(f"expected no column `{name}`: call() adds {', '.join(added)}; rename it or drop it")
    return StructType([*schema.fields, *(StructField(name, kind) for name, kind in added.items())])


class Parsed(NamedTuple):
    """Outcomes as a column RESULT, and an error for each that is none."""

    values: pa.Array
    errors: list[str | None]


def parsed(ended: Sequence[Ended], result: DataType) -> Parsed:
    """The values of calls as a type; one that is not JSON, or does not match the type, is an error."""
    errors = [one.outcome.error for one in ended]
    values: list[Any] = [None] * len(ended)
    for position, (call, outcome) in enumerate(ended):
        if outcome.value is not None:
            try:
                values[position] = _read(outcome.value, result)
            except (ValueError, RecursionError) as error:
                text = outcome.value.decode("utf-8", "replace")
                errors[position] = damaged_field("returnvalue", call.job_id, f"JSON ({error})", text)
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


def _read(value: bytes, result: DataType) -> Any:
    """Parses a value; as a string, it is what get_json_object of Spark gives: a text without quotes, or JSON."""
    found = None if value in NO_VALUE else json.loads(value)
    if found is None or not isinstance(result, StringType):
        return found
    return well_formed(found) if isinstance(found, str) else well_formed_json(value.decode("utf-8", "replace"))


def with_outcomes(rows: pa.RecordBatch, outcomes: Parsed, ended: Sequence[Ended], *, details: bool) -> pa.RecordBatch:
    """Rows with the columns of their outcomes."""
    added = {
        RESULT: outcomes.values,
        "error": pa.array(outcomes.errors, pa.string()),
        "jobId": pa.array([one.call.job_id for one in ended], pa.string()),
    }
    if details:
        found = [one.outcome.details for one in ended]
        added["attemptsMade"] = pa.array([one.attempts_made for one in found], pa.int32())
        added["durationMs"] = pa.array([one.duration_ms for one in found], pa.int64())
    return pa.RecordBatch.from_arrays([*rows.columns, *added.values()], names=[*rows.schema.names, *added])
