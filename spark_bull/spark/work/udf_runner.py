"""Runs pandas, Arrow and plain UDFs as processors. A chunk that raises is bisected, so that bad jobs fail alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql.types import DataType, Row, StructType, VariantVal

from spark_bull.core.errors import JobDamaged, OptionError, PayloadUnreadable, expected
from spark_bull.core.model.job_json import UNPARSED
from spark_bull.run.job.job_options import once_only
from spark_bull.run.job.job_runner import JobExpired, Result, Runner, Texts, interrupt, interruptible, run_bisected
from spark_bull.run.job.running_job import RunningJob, begin_together
from spark_bull.spark.json.json_text import is_encodable, is_struct, is_variant, to_json
from spark_bull.spark.json.json_values import array_of_column, array_of_texts, check_type, payload_array
from spark_bull.spark.platform.arrow import to_arrow_type
from spark_bull.spark.platform.capabilities import CAPABILITIES, KINDS


class UdfIterator:
    """Calls the function of an iterator UDF once, and continues its iterator with each chunk.

    What the function does before its loop, such as loading a model, is done once per slot, as Spark does it once per
    partition. The function is called again after it has raised an exception or ended its iterator. Picklable before
    the first chunk.
    """

    def __init__(self, function: Callable[[Iterator[Any]], Iterator[Any]]) -> None:
        self._function = function
        self._outputs: Iterator[Any] | None = None
        self._batch: Any = None

    def __call__(self, batch: Any, rows: int) -> list[Any]:
        """Returns the outputs for a batch with this number of rows.

        Raises what the function raises, and ValueError for an output that belongs to an earlier batch.
        """
        self._batch = batch
        outputs, found, is_new = [], 0, False
        try:
            while found < rows:
                if self._outputs is None:
                    self._outputs, is_new = iter(self._function(self._batches())), True
                output = next(self._outputs, None)
                if output is None:
                    self._outputs = None
                    if is_new or self._batch is None:
                        break
                    # An earlier call that read to the end of its iterator has ended: the batch needs another one.
                    continue
                if self._batch is not None:
                    raise ValueError("expected the UDF to yield as many values as it received, it yielded more")
                outputs.append(output)
                found += len(output)
        except BaseException:
            self._outputs = None
            raise
        return outputs

    def _batches(self) -> Iterator[Any]:
        while self._batch is not None:
            batch, self._batch = self._batch, None
            yield batch


#: A schema of payloads, or schemas by the names of the jobs.
PayloadSchema = str | DataType | Mapping[str, str | DataType] | None


def udf_runner(processor: Any, payload_schema: str | DataType | None, timeout_ms: int) -> UdfRunner:
    """Returns the runner of a UDF for payloads of a schema (DDL or type). Raises OptionError if they do not match."""
    kind = KINDS.get(processor.evalType)
    if kind is None:
        raise OptionError(
            "expected a UDF that returns one value per row, got one that aggregates or maps DataFrames. Pass a @udf, a "
            f"@pandas_udf of Series or iterators, an @arrow_udf (since PySpark {CAPABILITIES['arrow-udf'].since}), or "
            "a function DataFrame -> DataFrame"
        )
    if payload_schema is None:
        raise OptionError(
            "expected `payload_schema` for a UDF, such as payload_schema='origin STRING, distance DOUBLE', got none"
        )
    given = schema_of_payload(payload_schema)
    returns = to_arrow_type(processor.returnType)
    if not is_encodable(pa.field("returnvalue", returns)):
        raise OptionError(
            f"expected a UDF that returns a type that JSON can hold, got one that returns {processor.returnType}"
        )
    runner = UdfRunner(processor.func, kind, to_arrow_type(given), returns, timeout_ms)
    runner.check()
    return runner


def schema_of_payload(given: str | DataType) -> DataType:
    """Parses the type of a payload: DDL of columns ('a STRING, b INT') or one value ('DOUBLE'). Raises OptionError."""
    try:
        parsed = given if isinstance(given, DataType) else DataType.fromDDL(given)
    except Exception as error:  # Parsed by the JVM or by Spark Connect, with errors of their own.
        raise OptionError(f"expected `payload_schema` to be DDL, got {given!r}: {str(error).splitlines()[0]}") from None
    check_type("payload_schema", parsed)
    return parsed


def frame_schema(given: str | DataType | None) -> StructType | None:
    """Parses the schema of `data` for a function of DataFrames; None: it stays text. Raises OptionError."""
    payload = None if given is None else schema_of_payload(given)
    if payload is not None and not isinstance(payload, StructType):
        raise expected("payload_schema", "columns, such as 'a STRING, b INT', for a function of DataFrames", given)
    return payload


class UdfResults(NamedTuple):
    """The results of a UDF as JSON texts, and the errors of other rows."""

    texts: pa.Array
    errors: dict[int, BaseException]


@dataclass(frozen=True)
class UdfRunner(Runner):
    """Calls the function of a UDF with the payloads of a chunk, and with halves of it when the function raises.

    The function receives one column per field of the payload if it has as many parameters. With one parameter it
    receives the whole payload: a DataFrame (pandas), a struct (Arrow) or a Row. timeout_ms: per call; 0: none.
    """

    function: Callable[..., Any]
    kind: str
    payload: pa.DataType
    returns: pa.DataType
    timeout_ms: int = 0

    one_by_one = False
    may_end_process = True

    def interrupt(self, job: RunningJob) -> None:
        interrupt(job)

    def check(self) -> None:
        """Raises OptionError unless the function's number of parameters matches the payload."""
        parameters = _parameters(self.function)
        if parameters is None or parameters == 1 or parameters == self._width:
            return
        raise OptionError(
            f"expected the UDF to take one parameter, or one for each of the {self._width} fields of `payload_schema`, "
            f"got {parameters} parameters"
        )

    def __call__(self, jobs: Sequence[RunningJob], lost: Collection[str]) -> Iterator[Sequence[Result]]:
        begin_together(jobs)
        # After that: when the process is to end, another thread returns jobs that have not begun, and they are lost.
        held = [job for job in jobs if job.claimed.id not in lost] if lost else jobs
        payloads = _Payloads(held, self.payload)
        damaged = [Result(job, None, error) for job, error in payloads.damaged]
        yield damaged
        runnable = _others(held, {result.job for result in damaged})
        # A job that must never run twice has a call of its own.
        once = once_only([job.claimed for job in runnable])
        alone = [job for job in runnable if job.claimed.id in once] if once else ()
        yield from self._called(payloads, _others(runnable, {*alone}))
        for job in alone:
            yield from self._called(payloads, [job])

    def _called(self, payloads: _Payloads, jobs: Sequence[RunningJob]) -> Iterator[Sequence[Result]]:
        """The results of jobs that start together; those that have expired do not start."""
        # Few jobs expire, and an attribute is read faster than a property.
        expired = [Result(job, None, JobExpired()) for job in jobs if job.expires_s is not None and job.has_expired]
        yield expired
        started = _others(jobs, {result.job for result in expired})
        for part, outputs in run_bisected(started, partial(self._run, payloads)):
            if isinstance(outputs, BaseException):
                yield [Result(job, None, outputs) for job in part]
            else:
                yield Texts(part, outputs)

    def _run(self, payloads: _Payloads, jobs: Sequence[RunningJob]) -> list[str]:
        """Returns the function's results as JSON text, one per job. Raises what the function raises.

        Raises JobCancelled without a call if one of the jobs is cancelled: the others are called in other batches.
        """
        for job in jobs:
            if job.cancellation is not None:
                raise job.cancellation
        texts: list[str] = self._texts(jobs, payloads.column(jobs)).fill_null("null").to_pylist()
        return texts

    def _texts(self, jobs: Sequence[RunningJob], column: pa.Array) -> pa.Array:
        """The function's results as JSON texts, one per payload. Raises what the function raises."""
        output = interruptible(jobs, self.timeout_ms, self._call, column)
        if len(output) != len(column):
            raise ValueError(f"expected the UDF to return {len(column)} values, one per row, got {len(output)}")
        return to_json(output, pa.field("returnvalue", self.returns), ignore_nulls=False)

    def of_column(self, column: pa.Array) -> UdfResults | None:
        """The results for payloads, JSON texts, of jobs that nobody cancels; None unless Arrow can parse them all.

        Takes a fraction of the time that jobs take one by one.
        """
        payloads = array_of_column(column, self.payload)
        if payloads is None:
            return None
        texts, errors = list[pa.Array](), dict[int, BaseException]()

        def run(rows: Sequence[int]) -> pa.Array:
            return self._texts((), payloads.slice(rows[0], len(rows))).cast(pa.string())

        for rows, result in run_bisected(range(len(payloads)), run):
            if isinstance(result, BaseException):
                errors[rows[0]] = result
                result = pa.nulls(1, pa.string())
            texts.append(result)
        return UdfResults(pa.chunked_array(texts, pa.string()).combine_chunks(), errors)

    @cached_property
    def _width(self) -> int:
        return self.payload.num_fields if is_struct(self.payload) else 1

    @cached_property
    def _iterator(self) -> UdfIterator:
        return UdfIterator(self.function)

    @cached_property
    def _takes_columns(self) -> bool:
        return is_struct(self.payload) and _parameters(self.function) in (self._width, None)

    def _columns(self, column: pa.Array) -> list[pa.Array]:
        """Returns the arguments of the function: one column per field, or one column with the payload."""
        return column.flatten() if self._takes_columns else [column]

    def _arrow(self, values: Any) -> pa.Array:
        """Converts the function's result to an Arrow array of the type that the UDF declares."""
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        if isinstance(values, pa.Array):
            return values.cast(self.returns)
        if isinstance(values, pd.DataFrame):
            columns = _columns_of(values, self.returns)
            if columns is not None:
                return pa.StructArray.from_arrays(columns, fields=[*self.returns])
            values = pd.Series(values.to_dict("records"), dtype=object)
        if _has_own_form(self.returns):
            return pa.array([_plain(value) for value in values], self.returns, from_pandas=True)
        return pa.Array.from_pandas(values, type=self.returns)

    def _call(self, column: pa.Array) -> pa.Array:
        """The function's results for payloads. Raises what the function raises."""
        columns = self._columns(column)
        if self.kind == "row":
            rows = zip(*map(_in_python, columns), strict=True)
            return pa.array([_plain(self.function(*row)) for row in rows], self.returns)
        parts = columns if self.kind.startswith("arrow") else list(map(_as_pandas, columns))
        return self._through_iterator(parts) if self.kind.endswith("iterator") else self._arrow(self.function(*parts))

    def _through_iterator(self, parts: Sequence[Any]) -> pa.Array:
        batch = parts[0] if len(parts) == 1 else tuple(parts)
        outputs = [self._arrow(output) for output in self._iterator(batch, len(parts[0]))]
        return pa.chunked_array(outputs, self.returns).combine_chunks()


def _others(jobs: Sequence[RunningJob], excluded: Collection[RunningJob]) -> Sequence[RunningJob]:
    """The jobs without these."""
    return [job for job in jobs if job not in excluded] if excluded else jobs


class _Payloads:
    """The payloads of the jobs of a chunk, parsed together where Arrow can do it, else one by one.

    damaged: the jobs whose payload cannot be opened or parsed, with the errors.
    """

    def __init__(self, jobs: Sequence[RunningJob], kind: pa.DataType) -> None:
        self._kind = kind
        self._array = _parsed_together(jobs, kind)
        self._jobs = jobs
        one_by_one = jobs if self._array is None else ()
        self.damaged = [(job, error) for job in one_by_one if (error := _damage_of(job)) is not None]

    def column(self, jobs: Sequence[RunningJob]) -> pa.Array:
        """The payloads of some of the jobs. Raises WrongPayload."""
        if self._array is None:
            return payload_array([job.data for job in jobs], self._kind)
        if len(jobs) == len(self._jobs):
            return self._array
        places = {job: place for place, job in enumerate(self._jobs)}
        return self._array.take(pa.array([places[job] for job in jobs], pa.int32()))


def _parsed_together(jobs: Sequence[RunningJob], kind: pa.DataType) -> pa.Array | None:
    """The payloads, unless Arrow cannot parse them all."""
    if UNPARSED in "".join([job.claimed.opts for job in jobs]):
        return None
    try:
        return array_of_texts([job.data_text for job in jobs], kind)
    except PayloadUnreadable:
        return None


def _columns_of(frame: pd.DataFrame, kind: pa.DataType) -> list[pa.Array] | None:
    """The columns of a frame as fields of a struct; None if Arrow may convert one otherwise than its single values."""
    if not is_struct(kind) or not kind.num_fields or not frame.columns.is_unique or frame.columns.nlevels > 1:
        return None
    if not all(field.name in frame for field in kind):
        return None
    columns = [frame[field.name] for field in kind]
    if not all(_is_converted_alike(column.dtype, field.type) for column, field in zip(columns, kind, strict=True)):
        return None
    try:
        pairs = zip(columns, kind, strict=True)
        return [pa.array(column.to_numpy(), field.type, from_pandas=True) for column, field in pairs]
    except (pa.ArrowException, TypeError, ValueError, ArithmeticError):
        # Its single values, which are Python's, may be converted all the same.
        return None


def _is_converted_alike(dtype: Any, kind: pa.DataType) -> bool:
    if not isinstance(dtype, np.dtype):
        return False
    if dtype == np.dtype(object):
        return bool(pa.types.is_string(kind))
    return dtype.kind in "biuf" and dtype.isnative and bool(pa.from_numpy_dtype(dtype).equals(kind))


def _damage_of(job: RunningJob) -> JobDamaged | PayloadUnreadable | None:
    """The error of a payload that cannot be opened or parsed."""
    try:
        _ = job.data
    except (JobDamaged, PayloadUnreadable) as error:
        return error
    return None


def _parameters(function: Callable[..., Any]) -> int | None:
    """Number of positional parameters of a function; None for any number."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return None
    return sum(
        parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD) for parameter in parameters
    )


def _as_pandas(column: pa.Array) -> pd.Series[Any] | pd.DataFrame:
    if _has_own_form(column.type) and not is_struct(column.type):
        return pd.Series(_in_python(column), dtype=object)
    if is_struct(column.type):
        if not column.type.num_fields:
            return pd.DataFrame(index=range(len(column)))
        # Not `from_struct_array`, which takes all values of a slice in some versions of Arrow. To wake Arrow's threads
        # takes longer than to convert a chunk.
        parts = column.flatten()
        frame = pa.Table.from_arrays(parts, names=[field.name for field in column.type]).to_pandas(use_threads=False)
        for place, part in enumerate(parts):
            if _has_own_form(part.type):
                frame.isetitem(place, pd.Series(_in_python(part), dtype=object))
        return frame
    if _is_plain(column.type) and column.null_count < len(column):
        # The same in two thirds of the time.
        return pd.Series(column.to_numpy(zero_copy_only=False), copy=False)
    return column.to_pandas()


def _is_plain(kind: pa.DataType) -> bool:
    """Whether the values of a type are NumPy's, or texts."""
    types = pa.types
    return bool(types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind) or types.is_string(kind))


def _has_own_form(kind: pa.DataType) -> bool:
    """Whether Spark has another form in Python for values of a type than Arrow: VARIANT and MAP, and what has some."""
    if is_variant(kind) or pa.types.is_map(kind):
        return True
    return pa.types.is_nested(kind) and any(_has_own_form(kind.field(i).type) for i in range(kind.num_fields))


def _in_python(column: pa.Array) -> list[Any]:
    """The values of a column as Spark gives them to a UDF."""
    values: list[Any] = column.to_pylist()
    return list(map(_made(column.type), values)) if pa.types.is_nested(column.type) else values


def _made(kind: pa.DataType) -> Callable[[Any], Any]:
    """Returns the function that makes the values of Spark of those that Arrow has in Python."""
    if is_variant(kind):
        return _nullable(lambda value: VariantVal(value["value"], value["metadata"]))
    if is_struct(kind):
        members = {field.name: _made(field.type) for field in kind}
        return _nullable(lambda value: Row(**{name: make(value[name]) for name, make in members.items()}))
    if pa.types.is_map(kind):
        item = _made(kind.item_type)
        return _nullable(lambda value: {key: item(one) for key, one in value})
    if pa.types.is_nested(kind):
        item = _made(kind.value_type)
        return _nullable(lambda value: [item(one) for one in value])
    return lambda value: value


def _nullable(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else make(value)


def _plain(value: Any) -> Any:
    """Converts Spark's values to Arrow's, recursively."""
    if isinstance(value, VariantVal):
        return {"value": value.value, "metadata": value.metadata}
    if isinstance(value, Row):
        value = value.asDict()
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list) else value
