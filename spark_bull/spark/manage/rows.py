"""Maps the columns of a DataFrame to changes of jobs: checks the schema and converts Arrow batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    VariantType,
)

from spark_bull.dialects.changes import ACTIONS
from spark_bull.errors import OptionError, did_you_mean
from spark_bull.options import Options
from spark_bull.spark.dispatch.rows import QUEUE
from spark_bull.spark.json_text import check_json, is_encodable, to_json
from spark_bull.spark.schemas import SCHEMAS

_JSON: Final = (StringType, StructType, MapType, ArrayType, VariantType)
#: Columns, their types, and the names of these in SQL.
_TYPES: Final[Mapping[str, tuple[tuple[type[DataType], ...], str]]] = {
    "id": ((StringType, IntegralType), "STRING, or an integer"),
    QUEUE: ((StringType,), "STRING"),
    "action": ((StringType,), "STRING"),
    "data": (_JSON, "STRUCT, MAP, ARRAY, VARIANT, or STRING holding JSON"),
    "delay": ((IntegralType,), "an integer (ms)"),
    "priority": ((IntegralType, StringType), "an integer, or STRING with a name of one"),
    "lifo": ((BooleanType,), "BOOLEAN"),
    "resetAttempts": ((BooleanType,), "BOOLEAN"),
    "state": ((StringType,), "STRING"),
    "failedReason": ((StringType,), "STRING"),
    "returnvalue": (_JSON, "STRUCT, MAP, ARRAY, VARIANT, or STRING holding JSON"),
    "to": ((StringType,), "STRING"),
}
_BY_LOWER: Final = {name.lower(): name for name in _TYPES}
#: Columns of jobs as they are read, which are ignored.
_IGNORED: Final = frozenset(field.name.lower() for field in SCHEMAS["jobs"])
_PAYLOADS: Final = ("data", "returnvalue")
#: Options that are the default of a column of the same name.
DEFAULTS: Final = ("action", "delay", "priority", "lifo", "resetAttempts", "failedReason", "to")


@dataclass(frozen=True)
class ChangeRows:
    """Indexes of the columns, and defaults of those that a row does not give."""

    columns: Mapping[str, int]
    defaults: Mapping[str, Any]

    def rows(self, batch: pa.RecordBatch, numbers: Sequence[int]) -> dict[str, list[Any]]:
        """The values of a batch by column. numbers: those of the rows, for errors."""
        rows = {name: _values(name, batch, index, numbers) for name, index in self.columns.items()}
        for name, default in self.defaults.items():
            given = rows.get(name, [None] * batch.num_rows)
            rows[name] = [default if value is None else value for value in given]
        return rows


def _values(name: str, batch: pa.RecordBatch, index: int, numbers: Sequence[int]) -> list[Any]:
    array, field = batch.column(index), batch.schema.field(index)
    if name not in _PAYLOADS:
        return array.to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        check_json(array, name, numbers)
        return array.to_pylist()  # type: ignore[no-any-return]
    return to_json(array, field, ignore_nulls=True).to_pylist()  # type: ignore[no-any-return]


def plan_rows(schema: StructType, options: Options) -> ChangeRows:
    """Checks the columns of a DataFrame. Raises OptionError."""
    columns: dict[str, int] = {}
    for index, field in enumerate(schema.fields):
        name = _BY_LOWER.get(field.name.lower())
        if name is None:
            if field.name.lower() in _IGNORED:
                continue
            near = did_you_mean(field.name, _TYPES)
            raise OptionError(f"unknown column `{field.name}`{near} with mode=manage: drop it")
        types, words = _TYPES[name]
        if not isinstance(field.dataType, types):
            kind = field.dataType.simpleString().upper()
            raise OptionError(f"expected column `{field.name}` to be {words}, got: {kind}; cast it")
        columns[name] = index
    _check_payloads(schema, columns)
    defaults = {name: options[name] for name in DEFAULTS if options[name] is not None}
    if "id" not in columns:
        raise OptionError("expected a column `id` with mode=manage, got none: it names the job that is changed")
    for name in ("action", QUEUE):
        if name not in columns and options[name] is None:
            raise OptionError(f"expected an option `{name}`, or a column `{name}`, got neither")
    _check_needs(columns, defaults)
    if options[QUEUE] is not None:
        columns.pop(QUEUE, None)
    return ChangeRows(columns, defaults)


def _check_needs(columns: Mapping[str, int], defaults: Mapping[str, Any]) -> None:
    """Raises OptionError if the action of all rows needs a column that is missing."""
    if "action" in columns or defaults["action"] not in ACTIONS:
        return
    for name in ACTIONS[defaults["action"]].needs:
        if name not in columns and name not in defaults:
            raise OptionError(f"expected a column `{name}` for the action {defaults['action']}, got none")


def _check_payloads(schema: StructType, columns: Mapping[str, int]) -> None:
    for name in _PAYLOADS:
        if name in columns:
            field = schema.fields[columns[name]]
            if not is_encodable(to_arrow_schema(StructType([field]), timezone="UTC")[0]):
                kind = field.dataType.simpleString().upper()
                raise OptionError(f"expected column `{field.name}` to be of types that JSON can hold, got: {kind}")
