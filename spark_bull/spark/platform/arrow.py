"""Arrow types of Spark's types, with timestamps in UTC."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.pandas import types
from pyspark.sql.types import DataType, StructType

if TYPE_CHECKING:
    import pyarrow as pa

#: PySpark 4.0 and 4.1 lack the argument; their timestamps are in UTC.
_UTC: Final[dict[str, Any]] = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(types.to_arrow_type).parameters else {}
)


def to_arrow_schema(schema: StructType) -> pa.Schema:
    return types.to_arrow_schema(schema, **_UTC)


def to_arrow_type(kind: DataType) -> pa.DataType:
    return types.to_arrow_type(kind, **_UTC)
