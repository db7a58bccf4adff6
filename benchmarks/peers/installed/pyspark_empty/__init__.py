"""A data source that does nothing: the yardstick of the benchmark `first_use`. Spark discovers it as it does ours."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)


class EmptyReader(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        return iter(())


class EmptyStreamReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, str]:
        return {"at": "0"}

    def latestOffset(self, start: dict[str, str], limit: Any) -> dict[str, str]:
        return {"at": "1"}

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        return iter(())


class EmptyWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        deque(iterator, maxlen=0)
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        pass


class DefaultSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "empty"

    def schema(self) -> str:
        return "id STRING, data STRING"

    def reader(self, schema: Any) -> DataSourceReader:
        return EmptyReader()

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return EmptyStreamReader()

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        return EmptyWriter()
