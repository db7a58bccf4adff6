"""A UDF has the same outcomes for payloads that Arrow parses together as for jobs one by one, in the same calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from spark_bull.dialects.registry import DIALECTS
from spark_bull.keys import QueueKeys
from spark_bull.options.parse import parse_arguments
from spark_bull.options.table import QUEUE
from spark_bull.queue.core.handle import QueueHandle
from spark_bull.spark.process import udf_transform
from spark_bull.spark.process.udf_runner import UdfRunner
from spark_bull.spark.process.udf_transform import UdfTransformation
from spark_bull.store.connection import Connection
from spark_bull.store.settings import settings_of
from spark_bull.worker.job import outcome_policy

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


@pytest.mark.parametrize(
    ("protocol", "longest", "chunk_size"), [("bull-1", 4, 4), ("bullmq", 4, 0), ("bullmq", 100, 4)]
)
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
    chunk_size: int,
    longest: int,
    protocol: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (udf_transform, outcome_policy):
        monkeypatch.setattr(module, "MAX_RETURNVALUE", longest)
    handle = QueueHandle(
        Connection(settings_of(parse_arguments({}, QUEUE))), QueueKeys("q", "bull"), DIALECTS[protocol]
    )
    transformation = UdfTransformation(handle, UdfRunner(function, "pandas", PAYLOAD, returns), chunk_size)
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
