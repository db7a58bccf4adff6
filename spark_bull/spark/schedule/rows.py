"""Maps the columns of a DataFrame to schedules: checks the schema and converts Arrow batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    TimestampType,
    VariantType,
)

from spark_bull.errors import OptionError, did_you_mean
from spark_bull.options import Options
from spark_bull.spark.dispatch.rows import QUEUE, milliseconds_of
from spark_bull.spark.json_text import check_json, is_encodable, to_json

_TIME: Final = ((TimestampType, IntegralType), "TIMESTAMP, or an integer (ms since 1970)")
#: Columns, their types, and the names of these in SQL.
_COLUMNS: Final[Mapping[str, tuple[tuple[type[DataType], ...], str]]] = {
    "id": ((StringType,), "STRING"),
    QUEUE: ((StringType,), "STRING"),
    "every": ((IntegralType,), "an integer (ms)"),
    "pattern": ((StringType,), "STRING"),
    "tz": ((StringType,), "STRING"),
    "name": ((StringType,), "STRING"),
    "data": (
        (StringType, StructType, MapType, ArrayType, VariantType),
        "STRUCT, MAP, ARRAY, VARIANT, or STRING holding JSON",
    ),
    "limit": ((IntegralType,), "an integer"),
    "offset": ((IntegralType,), "an integer (ms)"),
    "startDate": _TIME,
    "endDate": _TIME,
    "opts": ((StringType, StructType, MapType), "STRING holding a JSON object, STRUCT or MAP"),
}
_BY_LOWER: Final = {name.lower(): name for name in _COLUMNS}
_JSON: Final = ("data", "opts")


@dataclass(frozen=True)
class ScheduleRows:
    """Indexes of the columns. tz: default of the column `tz`."""

    columns: Mapping[str, int]
    tz: str | None

    def rows(self, batch: pa.RecordBatch, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """The rows of a batch by the names of the columns. numbers: those of the rows, for errors."""
        columns = {name: _values(name, batch, index, numbers) for name, index in self.columns.items()}
        rows = [{name: column[position] for name, column in columns.items()} for position in range(batch.num_rows)]
        if self.tz is not None:
            for row in rows:
                if row.get("tz") is None:
                    row["tz"] = self.tz
        return rows


def _values(name: str, batch: pa.RecordBatch, index: int, numbers: Sequence[int]) -> list[Any]:
    array, field = batch.column(index), batch.schema.field(index)
    if name in _JSON and not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        array = to_json(array, field, ignore_nulls=True)
    elif name in _JSON:
        check_json(array, name, numbers)
    elif pa.types.is_timestamp(array.type):
        return milliseconds_of(array)
    values: list[Any] = array.to_pylist()
    return values


def plan_rows(schema: StructType, options: Options) -> ScheduleRows:
    """Checks the columns of a DataFrame. Raises OptionError."""
    columns: dict[str, int] = {}
    for index, field in enumerate(schema.fields):
        name = _BY_LOWER.get(field.name.lower())
        if name is None:
            near = did_you_mean(field.name, _COLUMNS)
            raise OptionError(
                f"unknown column `{field.name}`{near} with mode=schedule: drop it, or move it into `data`"
            )
        if name in columns:
            raise OptionError(f"expected one column `{name}`, got two: drop or rename one")
        types, words = _COLUMNS[name]
        if not isinstance(field.dataType, types):
            kind = field.dataType.simpleString().upper()
            raise OptionError(f"expected column `{field.name}` to be {words}, got: {kind}; cast it")
        columns[name] = index
    if "id" not in columns:
        raise OptionError("expected a column `id` with mode=schedule, got none: it names the schedule")
    if "every" not in columns and "pattern" not in columns:
        raise OptionError("expected a column `every` (ms) or `pattern` (cron) with mode=schedule, got neither")
    if options[QUEUE] is not None:
        columns.pop(QUEUE, None)
    elif QUEUE not in columns:
        raise OptionError("expected an option `queue`, or a column `queue`, got neither")
    _check_json_columns(schema, columns)
    return ScheduleRows(columns, options["tz"])


def _check_json_columns(schema: StructType, columns: Mapping[str, int]) -> None:
    for name in _JSON:
        if name in columns:
            field = schema.fields[columns[name]]
            if not is_encodable(to_arrow_schema(StructType([field]), timezone="UTC")[0]):
                kind = field.dataType.simpleString().upper()
                raise OptionError(f"expected column `{field.name}` to be of types that JSON can hold, got: {kind}")
