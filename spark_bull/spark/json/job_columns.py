"""Converts raw values of job hashes to Arrow columns, one column at a time.

Vectorized conversion handles what the Node libraries write. Other values are converted one by one with dialects.fields,
so that no content of a hash fails a read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from spark_bull.core.dialects.fields import (
    FIELDS,
    JSON_COLUMNS,
    NO_VALUE,
    NUMBERS,
    STALLED_PRESET,
    integer_of,
    text_of,
    traces_of,
)
from spark_bull.core.well_formed import well_formed_json
from spark_bull.spark.json.json_text import is_text, memory_of
from spark_bull.spark.json.json_values import values_of
from spark_bull.spark.json.types import TYPED_COLUMNS
from spark_bull.spark.platform.lazy_arrow import pc

#: The first and the last ms of the years 1 to 9999, which Python's timestamps have, and so Spark's in Python.
FIRST_MS: Final = -62_135_596_800_000
LAST_MS: Final = 253_402_300_799_999
#: Approximate maximum size of the raw values of an Arrow batch.
BATCH_BYTES: Final = 16 << 20


def raw_batch(columns: Mapping[str, Sequence[Any]]) -> pa.RecordBatch:
    """Copies the raw values of some jobs out of Python objects, which is quickest right after they have been read."""
    arrays = [_copied(raws, pa.int64() if name == "runAt" else pa.binary()) for name, raws in columns.items()]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _copied(raws: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Raw values as an array. Most jobs have no value of a third of the fields."""
    if len(raws) and raws[0] is None and raws.count(None) == len(raws):
        return pa.nulls(len(raws), kind)
    return pa.array(raws, kind)


def batches_of(raw: Iterable[pa.RecordBatch], schema: pa.Schema, sizes: Iterator[int]) -> Iterator[pa.RecordBatch]:
    """Converts raw batches, whose columns are in the order of `schema`, to larger ones of this schema.

    A conversion has costs that do not depend on the number of rows. sizes: how many rows each batch has at least,
    unless the values are large.
    """
    gathered: list[pa.RecordBatch] = []
    rows = size = 0
    enough = next(sizes)
    for one in raw:
        gathered.append(one)
        rows, size = rows + one.num_rows, size + one.nbytes
        if rows >= enough or size >= BATCH_BYTES:
            yield _combined(gathered, schema)
            gathered, rows, size, enough = [], 0, 0, next(sizes)
    if gathered:
        yield _combined(gathered, schema)


def _combined(gathered: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    names = gathered[0].schema.names
    columns = [pa.concat_arrays([one.column(number) for one in gathered]) for number in range(len(names))]
    arrays = [column_of(name, column, field.type) for name, column, field in zip(names, columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def column_of(name: str, raws: pa.Array, kind: pa.DataType) -> pa.Array:
    """Converts the raw values of a column of jobs to this type. raws: of type binary, ms as int64 for `runAt`."""
    if name == "runAt":
        return _times(raws, kind)
    field = FIELDS.get(name)
    if field is None:
        return texts(raws, kind)
    if name in TYPED_COLUMNS and not is_text(kind):
        return values_of(raws.to_pylist(), kind)
    if field.kind == "traces":
        return _traces(raws, kind)
    if field.kind == "time":
        return _times(_integers(raws, pa.int64(), field.default), kind)
    if field.kind in NUMBERS:
        numbers = _integers(raws, kind, field.default)
        return _stalls(numbers) if field.kind == "stalls" else numbers
    if name in JSON_COLUMNS:
        raws = well_formed_texts(raws)
    if field.kind == "json":
        raws = pc.if_else(pc.is_in(raws, pa.array(NO_VALUE, raws.type)), pa.scalar(None, raws.type), raws)
    return texts(raws, kind)


def well_formed_texts(raws: pa.Array) -> pa.Array:
    """JSON texts as `well_formed_json` returns them: the JSON functions of Spark would make `?` of half of a pair."""
    memory = memory_of(raws)
    # Most columns have no backslash; the search for it takes a tenth of the time of the other two.
    if b"\\" not in memory or (rb"\ud" not in memory and rb"\uD" not in memory):
        return raws
    return pa.array([raw and well_formed_json(text_of(raw) or "").encode() for raw in raws.to_pylist()], raws.type)


def texts(raws: pa.Array, kind: pa.DataType) -> pa.Array:
    """Converts raw strings to a column; invalid UTF-8 gets replacement characters."""
    try:
        return raws.cast(kind)
    except pa.ArrowInvalid:
        return pa.array([text_of(raw) for raw in raws.to_pylist()], kind)


def _traces(raws: pa.Array, kind: pa.DataType) -> pa.Array:
    if raws.null_count == len(raws):
        # `repeat` takes fifty times as long for lists.
        starts = pa.repeat(pa.scalar(0, pa.int32()), len(raws) + 1)
        return pa.ListArray.from_arrays(starts, pa.nulls(0, kind.value_type)).cast(kind)
    return pa.array([traces_of(raw) for raw in raws.to_pylist()], kind)


def _integers(raws: pa.Array, kind: pa.DataType, default: int | None) -> pa.Array:
    try:
        numbers = raws.cast(pa.string()).cast(kind)
    except pa.ArrowInvalid:
        limit = 2 ** (kind.bit_width - 1)
        numbers = pa.array([_within(integer_of(raw), limit) for raw in raws.to_pylist()], kind)
    return numbers if default is None else pc.fill_null(numbers, default)


def _stalls(counters: pa.Array) -> pa.Array:
    """As `stalls_of`; most jobs have not stalled."""
    is_preset = pc.greater_equal(counters, STALLED_PRESET)
    if not pc.any(is_preset).as_py():
        return counters
    return pc.if_else(is_preset, pc.subtract(counters, STALLED_PRESET), counters).cast(counters.type)


def _times(numbers: pa.Array, kind: pa.DataType) -> pa.Array:
    """Converts ms since 1970 to timestamps; values outside of the years 1 to 9999 become null."""
    in_range = pc.and_(pc.greater_equal(numbers, FIRST_MS), pc.less_equal(numbers, LAST_MS))
    micros = pc.multiply(pc.if_else(in_range, numbers, pa.scalar(None, pa.int64())), 1000)
    return micros.view(kind)


def _within(number: int | None, limit: int) -> int | None:
    return number if number is not None and -limit <= number < limit else None
