"""A streaming read that is refused when its query starts."""

from __future__ import annotations

from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from spark_bull.core.errors import SparkBullError
from spark_bull.core.short_errors import short_errors


@short_errors
class RefusedStream(DataSourceStreamReader):
    """Raises an error for the first offset: if the data source raises it, PySpark adds one of its own."""

    def __init__(self, error: SparkBullError) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:
        raise self._error

    def latestOffset(self, start: Any = None, limit: Any = None) -> NoReturn:
        raise self._error

    def partitions(self, start: Any, end: Any) -> NoReturn:
        raise self._error

    def read(self, partition: InputPartition) -> NoReturn:
        raise self._error
