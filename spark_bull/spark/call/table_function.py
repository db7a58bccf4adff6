"""bull_call: `call` in SQL, as a table function."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, cast

from pyspark.sql import Row, SparkSession
from pyspark.sql.functions import udtf
from pyspark.sql.types import IntegerType, StructField, StructType
from pyspark.sql.udtf import AnalyzeArgument, AnalyzeResult, SelectedColumn, UserDefinedTableFunction

from spark_bull.core.errors import OptionError, did_you_mean
from spark_bull.core.model.job_json import camel_case
from spark_bull.core.options.arguments import CallArguments
from spark_bull.core.options.values import json_object
from spark_bull.core.queue.call.caller import ADDED
from spark_bull.spark.call.call import call_plan
from spark_bull.spark.call.task import PARTITION, CallPlan, Task
from spark_bull.spark.platform.arrow import batches_of, rows_of
from spark_bull.spark.platform.lazy_arrow import pa

NAME: Final = "bull_call"


#: The arguments of `call` by their names in SQL.
_ARGUMENTS: Final = {
    camel_case(name): name
    for name in (
        *("return_schema", "timeout_ms", "in_flight", "on_error", "keep_ms", "job", "details"),
        *CallArguments.__annotations__,
    )
}


@dataclass(kw_only=True)
class CallAnalysis(AnalyzeResult):
    """The columns of a call, and what its tasks need. rows: the columns of its rows, and PARTITION."""

    plan: CallPlan
    rows: StructType


class BullCall:
    """The table function: `SELECT * FROM bull_call(TABLE(t), 'queue', returnSchema => 'text STRING')`."""

    @staticmethod
    def analyze(table: AnalyzeArgument, queue: AnalyzeArgument, **arguments: AnalyzeArgument) -> CallAnalysis:
        if not table.isTable or not isinstance(table.dataType, StructType):
            raise OptionError(f"expected the first argument of {NAME} to be a table, such as TABLE(t)")
        given = {_parameter(name): _constant(name, value) for name, value in arguments.items()}
        if isinstance(given.get("job"), str):
            given["job"] = json_object("job", given["job"])
        plan = call_plan(table.dataType, _constant("queue", queue), **given)
        return CallAnalysis(
            schema=plan.columns,
            select=[
                *(SelectedColumn(f"`{name.replace('`', '``')}`") for name in table.dataType.names),
                SelectedColumn("spark_partition_id()", PARTITION),
            ],
            plan=plan,
            rows=StructType([*table.dataType.fields, StructField(PARTITION, IntegerType())]),
        )

    def __init__(self, analysis: CallAnalysis) -> None:
        self._plan, self._schema = analysis.plan, analysis.rows
        self._opened = ExitStack()
        self._task: Task | None = None
        self._rows: list[Row] = []

    def eval(self, table: Row, queue: str, **arguments: Any) -> Iterator[Row]:
        self._rows.append(table)
        if len(self._rows) == ADDED:
            yield from self._add()

    def terminate(self) -> Iterator[Row]:
        yield from self._add()
        if self._task is not None:
            yield from self._given(self._task.finish())
            self._opened.close()

    def cleanup(self) -> None:
        """Called at the end, also after an error, with which the task is left unless it has ended."""
        self._opened.__exit__(GeneratorExit, GeneratorExit(), None)

    def _add(self) -> Iterator[Row]:
        rows, self._rows = self._rows, []
        for batch in batches_of(rows, self._schema) if rows else ():
            if self._task is None:
                self._task = self._opened.enter_context(self._plan.task(batch))
            yield from self._given(self._task.add(batch))

    def _given(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
        for batch in batches:
            yield from rows_of(batch, self._plan.columns)


def _parameter(name: str) -> str:
    if name not in _ARGUMENTS:
        raise OptionError(f"unknown argument `{name}` of {NAME}{did_you_mean(name, [*_ARGUMENTS])}")
    return _ARGUMENTS[name]


def _constant(name: str, argument: AnalyzeArgument) -> Any:
    if not argument.isConstantExpression:
        raise OptionError(f"expected the argument `{name}` of {NAME} to be a constant: give a literal")
    return argument.value


def register_function(spark: SparkSession) -> None:
    """Registers the table function in a session."""
    # Spark would warn that it replaces the function.
    if not spark.catalog.functionExists(NAME):
        spark.udtf.register(NAME, cast(UserDefinedTableFunction, udtf(BullCall, useArrow=False)))
