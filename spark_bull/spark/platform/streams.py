"""Readers of streams. PySpark 4.0 and 4.1 pass neither a start nor a limit to latestOffset()."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from spark_bull.errors import SparkBullError

__all__ = ["PASSES_START", "FirstBatch", "LimitedReader", "ReadAllAvailable", "ReadLimit", "ReadMaxRows", "as_called"]

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

    #: Whether latestOffset() gets the start and the limit of the batch, and AvailableNow is announced.
    PASSES_START: bool
else:
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )

        PASSES_START = True
    except ImportError:
        PASSES_START = False

        class ReadLimit:
            pass

        @dataclass
        class ReadAllAvailable(ReadLimit):
            pass

        @dataclass
        class ReadMaxRows(ReadLimit):
            max_rows: int

        class SupportsTriggerAvailableNow:
            pass


@dataclass
class FirstBatch(ReadLimit):
    """The limit of the first batch where AvailableNow is not announced: the query may end with it.

    max_rows: None for all that is available.
    """

    max_rows: int | None


class LimitedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader whose batches have a limit. has_limit: whether also the first one, which may be the only one."""

    has_limit = True

    def stop(self) -> None:
        """Spark does not call it: connections and threads end with the process."""


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
        limit = reader.getDefaultReadLimit()
        self._limit: ReadLimit = FirstBatch(getattr(limit, "max_rows", None) if reader.has_limit else None)

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
                "spark.sql.streaming.triggerAvailableNowWrapper.enabled=false, or use PySpark 4.2 or newer"
            )
        planned: Sequence[InputPartition] = [] if start == end else self._reader.partitions(start, end)
        self._planned = self._latest = end
        return planned

    def read(self, partition: InputPartition) -> Iterator[Any]:
        read: Iterator[Any] = self._reader.read(partition)
        return read

    def commit(self, end: dict[str, Any]) -> None:
        self._reader.commit(end)
