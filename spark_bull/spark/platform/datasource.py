"""Base classes of readers of streams and of writers that receive Arrow data; the Python processes that run tasks.

The readers are for a PySpark that passes a start and a limit to latestOffset().
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from socket import gethostname
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamReader, InputPartition, WriterCommitMessage

from spark_bull.core.error_text import short_errors
from spark_bull.core.errors import OptionError, SparkBullError
from spark_bull.core.late import late

__all__ = [
    "PASSES_START",
    "DataSourceArrowWriter",
    "DataSourceStreamArrowWriter",
    "FirstBatch",
    "LimitedReader",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "WriterCommitMessage",
]

if TYPE_CHECKING:
    from spark_bull.core.store import client
else:
    # redis-py, which only tasks need.
    (client,) = late("client", of="spark_bull.core.store")

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
    """A reader whose batches have up to `most` rows.

    has_limit: whether also the first one, which may be the only one.
    """

    most: int
    has_limit = True

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.most)


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


T = TypeVar("T")


def read_offset(offset: Mapping[str, Any], read: Callable[[Mapping[str, Any]], T]) -> T:
    """What `read` makes of an offset. Raises SparkBullError for one that it cannot read."""
    try:
        return read(offset)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise SparkBullError(
            f"expected an offset in the checkpoint that this kind of query has written, got: {str(offset)[:500]}. "
            "Restore a damaged checkpoint. A query with another `mode` or `view` needs a checkpoint of its own"
        ) from error


def check_reader(given: str | None, stored: str) -> None:
    """Raises OptionError for a `readerId` that is not the one in the checkpoint."""
    if given not in (None, stored):
        raise OptionError(
            f"expected `readerId` to be {stored!r}, with which the checkpoint was written, or to be left out, got: "
            f"{given!r}; to read under another name, give another checkpoint"
        )


if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:
    try:
        from pyspark.sql.datasource import DataSourceStreamArrowWriter
    except ImportError:
        from pyspark.sql.datasource import DataSourceStreamWriter

        class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):
            """PySpark 4.0 passes Arrow data to each DataSourceArrowWriter, also of streams."""


#: A setting that only spark-sql and the Thrift server make, in whose executions all statements may be.
_RUNS_STATEMENTS: Final = "spark.sql.hive.version"
#: Space or a comment. Repeated by a loop, as a pattern that repeats it would try to cut a comment in all possible ways.
_SPACE: Final = re.compile(r"\s+|--.*|/\*(?s:.*?)\*/")
#: How a statement begins that creates a table.
_CREATES: Final = re.compile(r"(CREATE|REPLACE)\b", re.IGNORECASE)


def refuse_created_table() -> None:
    """Raises OptionError in a task of a write for which Spark creates a table; a micro-batch is not told apart."""
    context = TaskContext.get()
    if context is not None and _creates_table(context.getLocalProperty):
        raise OptionError(
            "expected a write without a table, got saveAsTable, writeTo(…).create() or CREATE TABLE … AS SELECT: Spark "
            "could not read the table that it creates for them; call save()"
        )


def _creates_table(setting: Callable[[str], str | None]) -> bool:
    root = setting("spark.sql.execution.root.id")
    if root is None or root == setting("spark.sql.execution.id") or setting("sql.streaming.queryId") is not None:
        return False
    if setting(_RUNS_STATEMENTS) is None:
        return True
    statement, start = setting("spark.job.description") or "", 0
    while space := _SPACE.match(statement, start):
        start = space.end()
    return _CREATES.match(statement, start) is not None


def begin_task() -> None:
    """Lets errors of connections name this machine, and excludes what is loaded from later collections of garbage."""
    if TaskContext.get() is not None:
        client.name_machine(gethostname())
    _exclude_loaded()


@cache
def _exclude_loaded() -> None:
    """Excludes all objects that exist from collections of garbage, once: what later tasks leave must be collected.

    Spark collects garbage after each task. Nearly all objects belong to imported modules, and a collection takes as
    long as a task of thousands of jobs.
    """
    gc.freeze()
