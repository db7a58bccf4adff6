"""Readers of streams, as PySpark 4.0 and 4.1 call them: latestOffset() gets neither a start nor a limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from spark_bull.core.errors import SparkBullError
from spark_bull.spark.platform.capabilities import CAPABILITIES
from spark_bull.spark.platform.datasource import PASSES_START, FirstBatch, LimitedReader, ReadLimit


def as_called(reader: LimitedReader) -> DataSourceStreamReader:
    """The reader for the calls of this PySpark."""
    return reader if PASSES_START else PositionedReader(reader)


class PositionedReader(DataSourceStreamReader):
    """Keeps the position between calls, in the process that lives as long as the query.

    Before the first latestOffset() of a query that continues from a checkpoint, Spark calls partitions(offset, offset)
    with its newest offset.
    """

    def __init__(self, reader: LimitedReader) -> None:
        self._reader = reader
        self._initial: dict[str, Any] | None = None
        #: The end of the newest batch that was planned, or the initial offset; None: unknown.
        self._planned: dict[str, Any] | None = None
        #: The end of the next batch.
        self._latest: dict[str, Any] | None = None
        self._limit: ReadLimit = FirstBatch(reader.most if reader.has_limit else None)

    def initialOffset(self) -> dict[str, Any]:
        if self._initial is None:
            self._initial = self._reader.initialOffset()
        return self._initial

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        if self._planned is None:
            self._planned = self._latest = self.initialOffset()
        if self._latest == self._planned:
            self._latest = self._reader.latestOffset(self._planned, self._limit)
            self._limit = self._reader.getDefaultReadLimit()
        assert self._latest is not None
        return self._latest

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if start == end and self._latest not in (None, end):
            raise SparkBullError(
                "expected the offset of the checkpoint before the first request for the latest one, got it later: set "
                "spark.sql.streaming.triggerAvailableNowWrapper.enabled=false, or use "
                f"PySpark {CAPABILITIES['available-now'].since} or newer"
            )
        planned: Sequence[InputPartition] = [] if start == end else self._reader.partitions(start, end)
        self._planned = self._latest = end
        return planned

    def read(self, partition: InputPartition) -> Iterator[Any]:
        read: Iterator[Any] = self._reader.read(partition)
        return read

    def commit(self, end: dict[str, Any]) -> None:
        self._reader.commit(end)
