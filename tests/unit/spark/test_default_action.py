"""The option `action` is the default of the column."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from spark_bull.core.options.parse import parse_options
from spark_bull.core.options.table import ManageOptions
from spark_bull.spark.manage import plan_rows


def schema(*names: str) -> StructType:
    return StructType([StructField(name, StringType()) for name in names])


def batch(**columns: list[str | None]) -> Any:
    return pa.RecordBatch.from_pydict({name: pa.array(values, pa.string()) for name, values in columns.items()})


def test_the_option_of_a_change_stands_in_for_a_null() -> None:
    options = parse_options({"queue": "q", "mode": "manage", "action": "retry"}, ManageOptions)
    rows = plan_rows(schema("id", "action"), options).rows(batch(id=["1", "2"], action=["remove", None]), (0, 1))
    assert rows == {"id": ["1", "2"], "action": ["remove", "retry"]}
