"""Writes for which Spark creates a table: `saveAsTable`, `writeTo(…).create()`, `CREATE TABLE … AS SELECT`.

Spark does not pass the options of a table to a data source that is written in Python, so nothing could read the table.
On the driver, the data source is called as for `save()`. A task sees that the write is an execution within that of the
command which creates the table, and which drops it when the write fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from pyspark import TaskContext

from spark_bull.errors import OptionError

#: A setting that only spark-sql and the Thrift server make, in whose executions all statements may be.
_RUNS_STATEMENTS: Final = "spark.sql.hive.version"
#: How a statement begins that creates a table, behind comments.
_CREATES: Final = re.compile(r"(\s|--.*|/\*(?s:.*?)\*/)*(CREATE|REPLACE)\b", re.IGNORECASE)


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
    return _CREATES.match(setting("spark.job.description") or "") is not None
