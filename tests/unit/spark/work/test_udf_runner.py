"""UDFs: over iterators, results as Arrow columns, and the same outcomes together as one by one."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from spark_bull.core.dialects.registry import DIALECTS
from spark_bull.core.keys import QueueKeys
from spark_bull.core.options.parse import parse_arguments
from spark_bull.core.options.table import QueueOptions
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.store.connection import Connection
from spark_bull.run.job import outcome_policy
from spark_bull.spark.work import udf_transform
from spark_bull.spark.work.udf_runner import UdfIterator, UdfRunner, _as_pandas
from spark_bull.spark.work.udf_transform import UdfTransformation

STAMPS = [pd.Timestamp("2020-01-01", tz="UTC"), pd.NaT]
TYPES = (
    pa.int64(),
    pa.int32(),
    pa.float64(),
    pa.string(),
    pa.bool_(),
    pa.timestamp("us", "UTC"),
    pa.decimal128(10, 2),
    pa.date32(),
)
COLUMNS: tuple[Any, ...] = (
    *([1, 2], [1.0, 2.0], [1.5, np.nan], ["a", None], ["a", np.nan], [True, None], [True, False], ["1", "2"]),
    *([pd.NA, 1], STAMPS, [2**60 + 1, 1], [float("inf"), 1.0], [b"x", b"y"], [None, None]),
    *(
        np.array([one, one], dtype=object)
        for one in (np.int64(3), np.bool_(True), np.datetime64("2020-01-01T00:00:00"))
    ),
    *(np.array([1, 2], dtype=">f8"), np.array([1, 2], dtype=">i4")),
    *(pd.array([1, None], dtype="Int64"), np.array([1, 2], dtype="int32"), np.array([1, 2], dtype="float32")),
)


def outcome(act: Any, *given: Any, **more: Any) -> str:
    try:
        return repr(act(*given, **more).to_pylist())
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_column_of_a_frame_is_converted_as_its_values(kind: pa.DataType) -> None:
    returns = pa.struct([("a", kind)])
    runner = UdfRunner(lambda: None, "pandas", returns, returns)
    for values in COLUMNS:
        frame = pd.DataFrame({"a": values}, index=[7, 7])
        found = outcome(runner._arrow, frame)
        assert found == outcome(pa.array, frame.to_dict("records"), returns, from_pandas=True), repr(values)


PARTS: tuple[pa.Array, ...] = (
    *(pa.array(["a", "b"]), pa.array(["a", None]), pa.array([None], pa.string()), pa.array([], pa.string())),
    *(pa.array([1, 2]), pa.array([2**60, None]), pa.array([1, None], pa.int8()), pa.array([None], pa.int32())),
    *(pa.array([1.5, 2.0]), pa.array([1.5, None]), pa.array([1.5, None], pa.float32()), pa.array([1, 2, 3]).slice(1)),
    *(pa.array([True, False]), pa.array([True, None]), pa.array(["a", None, "c"]).slice(1), pa.array([], pa.int64())),
    *(pa.array([0], pa.timestamp("us", "UTC")), pa.array([0], pa.date32()), pa.array([[1], None]), pa.array([b"x"])),
)


@pytest.mark.parametrize("are_texts_typed", [False, True])
def test_a_function_gets_the_series_that_arrow_makes(are_texts_typed: bool) -> None:
    for column in PARTS:
        with pd.option_context("future.infer_string", are_texts_typed):
            found, wanted = _as_pandas(column), column.to_pandas()
        pd.testing.assert_series_equal(found, wanted, check_index_type="exact")
        assert repr(found.tolist()) == repr(wanted.tolist())
        assert found.to_numpy().flags.writeable == wanted.to_numpy().flags.writeable


def test_a_payload_without_fields_has_a_row_for_each_job() -> None:
    assert _as_pandas(pa.array([{}, None], pa.struct([]))).shape == (2, 0)


def test_a_function_of_a_frame_gets_the_rows_of_its_part() -> None:
    """Some versions of Arrow make a table of all values of a slice, of which the first part is one."""

    def function(payload: pd.DataFrame) -> pd.Series[Any]:
        if (payload["n"] == 0).any():
            raise ValueError("zero")
        return payload["n"] * 2

    runner = UdfRunner(function, "pandas", pa.struct([("n", pa.int64()), ("s", pa.string())]), pa.int64())
    called = runner.of_column(pa.array([f'{{"n":{n},"s":"x"}}' for n in (0, 1, 2, 3)]))
    assert called.texts.to_pylist() == [None, "2", "4", "6"]
    assert [*called.errors] == [0]


@pytest.mark.parametrize(
    ("frame", "fields"),
    [
        (pd.DataFrame({"a": [1.0, np.nan], "b": ["x", "y"]}), {"b": pa.string(), "a": pa.float64()}),
        (pd.DataFrame({"b": [1, 2]}), {"a": pa.int64()}),
        (pd.DataFrame({("a", "b"): [1, 2]}), {"a": pa.int64()}),
        (pd.DataFrame({"a": [1, 2]}), {}),
    ],
    ids=["other order", "missing", "two levels", "none"],
)
def test_columns_are_taken_by_name(frame: pd.DataFrame, fields: dict[str, pa.DataType]) -> None:
    returns = pa.struct([*fields.items()])
    runner = UdfRunner(lambda: None, "pandas", returns, returns)
    assert outcome(runner._arrow, frame) == outcome(pa.array, frame.to_dict("records"), returns, from_pandas=True)


def values(outputs: list[Any]) -> list[int]:
    return [int(value) for output in outputs for value in output]


def series(*numbers: int) -> pd.Series[int]:
    return pd.Series(list(numbers))


class Counting:
    """A UDF that counts how often it is set up."""

    def __init__(self) -> None:
        self.setups = 0

    def __call__(self, batches: Iterator[pd.Series[int]]) -> Iterator[pd.Series[int]]:
        self.setups += 1
        for batch in batches:
            if -1 in set(batch):
                raise ValueError("bad row")
            yield batch * 10


def test_a_udf_is_set_up_once_for_all_chunks_and_again_after_an_exception() -> None:
    udf = pickle.loads(pickle.dumps(UdfIterator(Counting())))
    assert [values(udf(series(n, n + 1), 2)) for n in range(3)] == [[0, 10], [10, 20], [20, 30]]
    assert udf._function.setups == 1
    with pytest.raises(ValueError, match="bad row"):
        udf(series(-1), 1)
    assert values(udf(series(2), 1)) == [20]
    assert udf._function.setups == 2


def test_a_udf_may_yield_a_batch_in_parts_or_after_all_others_or_nothing() -> None:
    def by_row(batches: Iterator[pd.Series[int]]) -> Iterator[pd.Series[int]]:
        for batch in batches:
            for number in batch:
                yield series(number)

    def in_one(batches: Iterator[pd.Series[int]]) -> Iterator[pd.Series[int]]:
        yield pd.concat(list(batches))

    def nothing(batches: Iterator[pd.Series[int]]) -> Iterator[pd.Series[int]]:
        yield from ()

    for function in (by_row, in_one, nothing):
        udf = UdfIterator(function)
        assert values(udf(series(1, 2, 3), 3)) == ([] if function is nothing else [1, 2, 3])
        assert values(udf(series(4), 1)) == ([] if function is nothing else [4])


def test_outputs_are_never_taken_for_those_of_a_later_batch() -> None:
    def twice(batches: Iterator[pd.Series[int]]) -> Iterator[pd.Series[int]]:
        for batch in batches:
            yield batch
            yield batch

    udf = UdfIterator(twice)
    assert values(udf(series(1), 1)) == [1]
    with pytest.raises(ValueError, match="it yielded more"):
        udf(series(2), 1)


Series = pd.Series
PAYLOAD = pa.struct([("n", pa.int64()), ("s", pa.string())])
ROWS = [f'{{"n":{n},"s":"{"false" if n == 3 else "é" * n}"}}' for n in range(9)]
calls: list[int] = []


def doubled(number: Series[Any], _text: Series[Any]) -> Series[Any]:
    calls.append(len(number))
    return number * 2


def raising(number: Series[Any], _text: Series[Any]) -> Series[Any]:
    calls.append(len(number))
    if number.isin([2, 7]).any():
        raise ValueError("no")
    return number


def text(_number: Series[Any], text: Series[Any]) -> Series[Any]:
    return text


def nothing(number: Series[Any], _text: Series[Any]) -> Series[Any]:
    return pd.Series([None] * len(number))


def too_few(number: Series[Any], _text: Series[Any]) -> Series[Any]:
    calls.append(len(number))
    return number[1:]


@pytest.mark.parametrize(("protocol", "longest"), [("bull-1", 4), ("bullmq", 4), ("bullmq", 100)])
@pytest.mark.parametrize(
    ("function", "returns"),
    [
        *((doubled, pa.int64()), (raising, pa.int64()), (too_few, pa.int64())),
        *((text, pa.string()), (text, pa.bool_()), (nothing, pa.string()), (nothing, pa.null())),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_outcomes(
    function: Callable[..., Any],
    returns: pa.DataType,
    longest: int,
    protocol: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (udf_transform, outcome_policy):
        monkeypatch.setattr(module, "MAX_RETURNVALUE", longest)
    handle = QueueHandle(
        Connection(parse_arguments({}, QueueOptions).redis), QueueKeys("q", "bull"), DIALECTS[protocol]
    )
    transformation = UdfTransformation(handle, UdfRunner(function, "pandas", PAYLOAD, returns))
    together = outcomes_of(transformation)
    monkeypatch.setattr(UdfRunner, "of_column", lambda *_: None)
    assert together == outcomes_of(transformation)


def outcomes_of(transformation: UdfTransformation) -> tuple[list[dict[str, Any]], list[int]]:
    """The rows of the outcomes without stack traces, and the sizes of the calls."""
    calls.clear()
    ids = [str(row) for row in range(len(ROWS))]
    batch = pa.RecordBatch.from_pydict({"id": ids, "token": ["t"] * len(ROWS), "data": ROWS})
    rows = pa.Table.from_batches(transformation(iter([batch]))).drop_columns(["stacktrace"]).to_pylist()
    # NULL is settled as the JSON text `null`.
    return [row | {"returnvalue": row["returnvalue"] or "null"} for row in rows], [*calls]
