"""UDFs as processors: payloads go through a pandas, Arrow or plain UDF a chunk at a time; poison rows fail alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pandas as pd
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType, Row
from pyspark.util import PythonEvalType

from spark_bull.errors import JobDamaged, OptionError
from spark_bull.model import RawJson
from spark_bull.spark.json_text import is_encodable, to_json
from spark_bull.spark.process.payload import column_of
from spark_bull.worker.bisection import run_bisected
from spark_bull.worker.job_runner import Result, time_limit
from spark_bull.worker.running_job import RunningJob

#: What a UDF's function takes and returns, by Spark's own name for its kind.
_KINDS: Final = {
    PythonEvalType.SQL_BATCHED_UDF: "row",
    PythonEvalType.SQL_ARROW_BATCHED_UDF: "row",
    PythonEvalType.SQL_SCALAR_PANDAS_UDF: "pandas",
    PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF: "pandas-iterator",
    PythonEvalType.SQL_SCALAR_ARROW_UDF: "arrow",
    PythonEvalType.SQL_SCALAR_ARROW_ITER_UDF: "arrow-iterator",
}


def is_udf(processor: object) -> bool:
    """Whether it was made by @udf, @pandas_udf or @arrow_udf."""
    return callable(processor) and hasattr(processor, "evalType") and hasattr(processor, "returnType")


def udf_runner(processor: Any, payload_schema: str | DataType | None, timeout_ms: int) -> UdfRunner:
    """The runner of a UDF over payloads of a schema, given as DDL or type. Raises OptionError for what doesn't fit."""
    kind = _KINDS.get(processor.evalType)
    if kind is None:
        raise OptionError(
            "expected a UDF that gives a value per row (@udf, @pandas_udf Series to Series or iterators of them, "
            "@arrow_udf), got one that groups or maps whole frames: give such work as a DataFrame -> DataFrame function"
        )
    if payload_schema is None:
        raise OptionError(
            "expected `payload_schema` for a UDF, such as payload_schema='origin STRING, distance DOUBLE', got none"
        )
    given = schema_of_payload(payload_schema)
    returns = to_arrow_type(processor.returnType)
    if not is_encodable(pa.field("returnvalue", returns)):
        raise OptionError(f"expected a UDF whose result JSON can hold, got one that returns {processor.returnType}")
    runner = UdfRunner(processor.func, kind, to_arrow_type(given), returns, timeout_ms)
    runner.check()
    return runner


def schema_of_payload(given: str | DataType) -> DataType:
    """A payload's type: DDL of columns ('a STRING, b INT') or of one value ('DOUBLE'). Raises OptionError."""
    if isinstance(given, DataType):
        return given
    try:
        return DataType.fromDDL(given)
    except Exception as error:  # Spark parses it in the JVM, or far away.
        raise OptionError(f"expected `payload_schema` to be DDL, got {given!r}: {str(error).splitlines()[0]}") from None


@dataclass(frozen=True)
class UdfRunner:
    """Runs the function of a UDF over all payloads of a chunk; when it raises, over halves, down to the poison rows.

    The function gets one column per field of the payload when it has as many parameters, else, with one parameter, the
    whole payload: a DataFrame (pandas), a struct (Arrow) or a Row. timeout_ms: per call, 0: none.
    """

    function: Callable[..., Any]
    kind: str
    payload: pa.DataType
    returns: pa.DataType
    timeout_ms: int = 0

    one_by_one = False

    def check(self) -> None:
        """Raises OptionError unless the function's parameters and the payload's fields go together."""
        parameters = _parameters(self.function)
        if parameters is None or parameters == 1 or parameters == self._width:
            return
        raise OptionError(
            f"expected the UDF to take the whole payload, or one column for each of its {self._width} fields; "
            f"it has {parameters} parameters"
        )

    def __call__(self, jobs: Sequence[RunningJob], lost: Collection[str]) -> Iterator[Result]:
        parsed: dict[str, Any] = {}
        for job in jobs:
            if job.claimed.id not in lost:
                try:
                    parsed[job.claimed.id] = job.data
                except JobDamaged as error:
                    parsed[job.claimed.id] = error
        sound = [value for value in parsed.values() if not isinstance(value, JobDamaged)]
        ran = iter(run_bisected(sound, self._run))
        for job in jobs:
            if job.claimed.id in parsed:
                made = parsed[job.claimed.id] if isinstance(parsed[job.claimed.id], JobDamaged) else next(ran)
                yield Result(job, None, made) if isinstance(made, BaseException) else Result(job, made, None)

    def _run(self, values: Sequence[Any]) -> list[RawJson | None]:
        """JSON text of what the function returns for each payload. Raises whatever it raises."""
        column = column_of(values, self.payload)
        with time_limit(self.timeout_ms):
            made = _CALLS[self.kind](self, column)
        if len(made) != len(values):
            raise ValueError(f"expected the UDF to return {len(values)} values, one for each row, got {len(made)}")
        texts = to_json(made, pa.field("returnvalue", self.returns), ignore_nulls=False).to_pylist()
        return [None if text is None else RawJson(text) for text in texts]

    @cached_property
    def _width(self) -> int:
        return self.payload.num_fields if pa.types.is_struct(self.payload) else 1

    @cached_property
    def _takes_columns(self) -> bool:
        return pa.types.is_struct(self.payload) and _parameters(self.function) in (self._width, None)

    def _columns(self, column: pa.Array) -> list[pa.Array]:
        """What the function's parameters get: a column for each field, or one for all."""
        return column.flatten() if self._takes_columns else [column]

    def _arrow(self, values: Any) -> pa.Array:
        """The function's result as an Arrow array of the type that the UDF declares."""
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        if isinstance(values, pa.Array):
            return values.cast(self.returns)
        if isinstance(values, pd.DataFrame):
            return pa.array(values.to_dict("records"), self.returns, from_pandas=True)
        return pa.Array.from_pandas(values, type=self.returns)

    def by_row(self, column: pa.Array) -> pa.Array:
        rows = zip(*(part.to_pylist() for part in self._columns(column)), strict=True)
        return pa.array([_plain(self.function(*map(_as_row, row))) for row in rows], self.returns)

    def by_series(self, column: pa.Array) -> pa.Array:
        return self._arrow(self.function(*map(_as_pandas, self._columns(column))))

    def by_series_iterator(self, column: pa.Array) -> pa.Array:
        return self._through_iterator([_as_pandas(part) for part in self._columns(column)])

    def by_array(self, column: pa.Array) -> pa.Array:
        return self._arrow(self.function(*self._columns(column)))

    def by_array_iterator(self, column: pa.Array) -> pa.Array:
        return self._through_iterator(self._columns(column))

    def _through_iterator(self, parts: Sequence[Any]) -> pa.Array:
        batch = parts[0] if len(parts) == 1 else tuple(parts)
        return pa.chunked_array([self._arrow(made) for made in self.function(iter([batch]))]).combine_chunks()


_CALLS: Final[dict[str, Callable[[UdfRunner, pa.Array], pa.Array]]] = {
    "row": UdfRunner.by_row,
    "pandas": UdfRunner.by_series,
    "pandas-iterator": UdfRunner.by_series_iterator,
    "arrow": UdfRunner.by_array,
    "arrow-iterator": UdfRunner.by_array_iterator,
}


def _parameters(function: Callable[..., Any]) -> int | None:
    """How many parameters a function has; None for any number."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return None
    return sum(
        parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD) for parameter in parameters
    )


def _as_pandas(column: pa.Array) -> pd.Series[Any] | pd.DataFrame:
    if pa.types.is_struct(column.type):
        return pa.Table.from_arrays(column.flatten(), names=[field.name for field in column.type]).to_pandas()
    return column.to_pandas()


def _as_row(value: Any) -> Any:
    """Structs as Spark's Rows, all through."""
    if isinstance(value, dict):
        return Row(**{name: _as_row(part) for name, part in value.items()})
    return [_as_row(part) for part in value] if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    """Spark's Rows as dicts, all through."""
    if isinstance(value, Row):
        return {name: _plain(part) for name, part in value.asDict().items()}
    return [_plain(part) for part in value] if isinstance(value, list) else value
