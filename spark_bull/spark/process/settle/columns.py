"""The names and types of the columns of mode=settle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    IntegralType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark_bull.errors import OptionError, did_you_mean
from spark_bull.spark.json.json_text import is_encodable
from spark_bull.spark.process.settle.follow_up_column import THEN
from spark_bull.spark.schemas import CLAIM_SCHEMA

#: Optional columns, their types, and the names of the types in SQL.
_OPTIONAL: Final[Mapping[str, tuple[type[DataType], str]]] = {
    "queue": (StringType, "STRING"),
    "error": (StringType, "STRING"),
    "stacktrace": (StringType, "STRING"),
    "unrecoverable": (BooleanType, "BOOLEAN"),
    "delay": (IntegralType, "an integer (ms)"),
    "runAt": (TimestampType, "TIMESTAMP"),
    "rateLimit": (IntegralType, "an integer (ms)"),
    "waitForChildren": (BooleanType, "BOOLEAN"),
    THEN: (ArrayType, "ARRAY<STRUCT<data, …>>"),
}
_BY_LOWER: Final = {name.lower(): name for name in ("id", "token", "returnvalue", *_OPTIONAL)}
#: Columns that say when a job runs again without counting the attempt.
POSTPONING: Final = ("delay", "runAt", "rateLimit", "waitForChildren")
#: Columns of which at least one is required.
OUTCOMES: Final = ("returnvalue", "error", *POSTPONING)
#: All columns that settling reads.
SETTLED_COLUMNS: Final = tuple(_BY_LOWER.values())
#: Other columns of the claim, which are ignored.
_IGNORED: Final = frozenset(field.name.lower() for field in CLAIM_SCHEMA)


def check_columns(schema: StructType) -> dict[str, StructField]:
    """Returns the columns by their names in SETTLED_COLUMNS. Raises OptionError."""
    names = {_BY_LOWER.get(field.name.lower(), field.name.lower()): field for field in schema}
    for name in ("id", "token"):
        if name not in names or not isinstance(names[name].dataType, StringType):
            raise OptionError(f"expected a column `{name}` STRING with mode=settle, as the claim gave it")
    if not names.keys() & OUTCOMES:
        raise OptionError("expected a column `returnvalue` or `error` with mode=settle, got neither")
    for name, field in names.items():
        wanted, words = _OPTIONAL.get(name, (DataType, ""))
        if not isinstance(field.dataType, wanted):
            kind = field.dataType.simpleString().upper()
            raise OptionError(f"expected column `{field.name}` to be {words}, got: {kind}")
        if name not in {*SETTLED_COLUMNS, *_IGNORED}:
            near = did_you_mean(field.name, ("returnvalue", *_OPTIONAL))
            raise OptionError(f"unknown column `{field.name}`{near}: put it into `returnvalue`, or drop it")
    value = names.get("returnvalue")
    if value is not None and not is_encodable(to_arrow_schema(StructType([value]), timezone="UTC")[0]):
        raise OptionError(
            f"expected column `returnvalue` to be of types that JSON can hold, got: {value.dataType.simpleString()}"
        )
    return names
