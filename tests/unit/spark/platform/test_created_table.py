"""Which settings of a task show that Spark creates a table for its write."""

from __future__ import annotations

import pytest
from pyspark import TaskContext

from spark_bull.errors import OptionError
from spark_bull.spark.platform.created_table import refuse_created_table

NESTED = {"spark.sql.execution.id": "3", "spark.sql.execution.root.id": "2"}
BY_SPARK_SQL = NESTED | {"spark.sql.hive.version": "2.3.10"}


class _Context:
    def __init__(self, settings: dict[str, str]) -> None:
        self.getLocalProperty = settings.get


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="no execution of SQL"),
        pytest.param({"spark.sql.execution.id": "2", "spark.sql.execution.root.id": "2"}, id="save"),
        pytest.param(NESTED | {"sql.streaming.queryId": "q"}, id="foreachBatch"),
        pytest.param(
            BY_SPARK_SQL | {"spark.job.description": f"{'-' * 80}\n{'/**/' * 80}INSERT INTO t SELECT 1"}, id="spark-sql"
        ),
    ],
)
def test_a_write_without_a_table_is_allowed(monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]) -> None:
    monkeypatch.setattr(TaskContext, "get", lambda: _Context(settings))
    refuse_created_table()


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(NESTED, id="saveAsTable"),
        pytest.param(NESTED | {"spark.job.description": "INSERT INTO t SELECT 1"}, id="saveAsTable of a described job"),
        pytest.param(
            BY_SPARK_SQL | {"spark.job.description": f"--{'-' * 80}\n/* all\n*/ create table t USING bull AS SELECT 1"},
            id="spark-sql",
        ),
    ],
)
def test_a_write_that_creates_a_table_is_refused(monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]) -> None:
    monkeypatch.setattr(TaskContext, "get", lambda: _Context(settings))
    with pytest.raises(OptionError, match=r"call save\(\)"):
        refuse_created_table()


def test_a_process_that_runs_no_task_writes_as_it_likes() -> None:
    refuse_created_table()
