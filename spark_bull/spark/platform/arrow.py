"""Arrow types of Spark's types, with timestamps in UTC, and the JSON text of VARIANTs."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Row
from pyspark.sql.conversion import ArrowTableToRowsConversion, LocalDataToArrowConversion
from pyspark.sql.pandas import types
from pyspark.sql.types import DataType, StructType
from pyspark.sql.variant_utils import VariantUtils

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


def variant_encoder(
    time_text: Callable[[int], str], date_text: Callable[[int], str]
) -> Callable[[Mapping[str, bytes]], str]:
    """Returns the function that makes JSON text of a VARIANT; NaN and infinities become null.

    time_text: makes the text of a time without a zone, in ms since 1970; date_text: of a date, in days since 1970.
    """

    class _Texts(VariantUtils):
        @classmethod
        def _get_scalar(cls, variant_type: Any, value: bytes, metadata: bytes, pos: int, zone_id: str) -> Any:
            if variant_type is date:
                return date_text(cls._get_long(value, pos))
            if variant_type is datetime:
                zone = "Z" if cls._get_type_info(value, pos)[1] == cls.TIMESTAMP else ""
                return time_text(cls._read_long(value, pos + 1, 8, signed=True) // 1000) + zone
            found = super()._get_scalar(variant_type, value, metadata, pos, zone_id)
            return None if isinstance(found, float) and not math.isfinite(found) else found

    return lambda variant: _Texts.to_json(variant["value"], variant["metadata"])


def batches_of(rows: Sequence[Row], schema: StructType) -> list[pa.RecordBatch]:
    found: list[pa.RecordBatch] = LocalDataToArrowConversion.convert(rows, schema, False).to_batches()
    return found


def rows_of(batch: pa.RecordBatch, schema: StructType) -> list[Row]:
    import pyarrow

    return ArrowTableToRowsConversion.convert(pyarrow.Table.from_batches([batch]), schema)
