"""Rows of Python and Arrow batches of a schema, as PySpark converts them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Row
from pyspark.sql.conversion import ArrowTableToRowsConversion, LocalDataToArrowConversion
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    import pyarrow as pa


def batches_of(rows: Sequence[Row], schema: StructType) -> list[pa.RecordBatch]:
    found: list[pa.RecordBatch] = LocalDataToArrowConversion.convert(rows, schema, False).to_batches()
    return found


def rows_of(batch: pa.RecordBatch, schema: StructType) -> list[Row]:
    import pyarrow

    return ArrowTableToRowsConversion.convert(pyarrow.Table.from_batches([batch]), schema)
