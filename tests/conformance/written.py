"""A whole write of Spark in one call, and the schemas of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql.types import DataType, StructField, StructType

from tests.support.without_spark import Sink


def struct(**fields: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])


def written(options: dict[str, str], schema: StructType, *tasks: Sequence[dict[str, Any]]) -> Sink:
    """Writes the rows of these tasks, and commits."""
    sink = Sink(options, schema)
    for rows in tasks:
        sink.task(rows)
    sink.commit()
    return sink
