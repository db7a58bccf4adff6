"""Base classes of writers that receive Arrow data."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from spark_bull.core.errors import OptionError

__all__ = ["DataSourceArrowWriter", "DataSourceStreamArrowWriter", "WriterCommitMessage"]

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
