"""Results of UDFs become Arrow columns as their single values would."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from spark_bull.spark.process.udf_runner import UdfRunner, _as_pandas, _columns_of

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
    assert called is not None
    assert called.texts.to_pylist() == [None, "2", "4", "6"]
    assert [*called.errors] == [0]


@pytest.mark.parametrize(
    ("frame", "fields", "rows"),
    [
        (pd.DataFrame({"a": [1.0, np.nan], "b": ["x", "y"]}), {"b": pa.string(), "a": pa.float64()}, True),
        (pd.DataFrame({"b": [1, 2]}), {"a": pa.int64()}, False),
        (pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"]), {"a": pa.int64()}, False),
        (pd.DataFrame({("a", "b"): [1, 2]}), {"a": pa.int64()}, False),
        (pd.DataFrame({"a": [1, 2]}), {}, False),
    ],
    ids=["other order", "missing", "twice", "two levels", "none"],
)
def test_columns_are_taken_by_name(frame: pd.DataFrame, fields: dict[str, pa.DataType], rows: bool) -> None:
    returns = pa.struct(list(fields.items()))
    columns = _columns_of(frame, returns)
    assert (columns is not None) == rows
    if columns is not None:
        found = pa.StructArray.from_arrays(columns, fields=[*returns])
        assert found.to_pylist() == [{"b": "x", "a": 1.0}, {"b": "y", "a": None}]
