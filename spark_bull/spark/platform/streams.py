"""Readers of streams, as PySpark calls them that passes a start and a limit to latestOffset()."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader

__all__ = ["PASSES_START", "FirstBatch", "LimitedReader", "ReadAllAvailable", "ReadLimit", "ReadMaxRows"]

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
