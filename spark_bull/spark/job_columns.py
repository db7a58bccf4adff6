"""Converts raw values of job hashes to Arrow columns, one column at a time.

Vectorized conversion handles what the Node libraries write. Other values are converted one by one with dialects.fields,
so that no content of a hash fails a read.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Final

import pyarrow as pa

from spark_bull.dialects.fields import FIELDS, NO_VALUE, NUMBERS, STALLED_PRESET, Raw, integer_of, text_of, traces_of
from spark_bull.queue.read import Chunk
from spark_bull.spark.json_schema import TYPED_COLUMNS
from spark_bull.spark.json_values import values_of
from spark_bull.spark.lazy_arrow import pc

#: The last ms of the year 9999, the maximum of Spark's and Python's timestamps.
LAST_MS: Final = 253_402_300_799_999
#: Maximum number of chunks per Arrow batch; chunks are limited in bytes.
BATCH_CHUNKS: Final = 16


def batch_of(chunks: Sequence[tuple[str, Chunk]], columns: Sequence[str], schema: pa.Schema) -> pa.RecordBatch:
    """Combines chunks of jobs, each with the name of its queue, into one batch of this schema."""
    arrays = [_column(name, chunks, field.type) for name, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(name: str, chunks: Sequence[tuple[str, Chunk]], kind: pa.DataType) -> pa.Array:
    if name == "queue":
        return pa.array(list(chain.from_iterable([queue] * len(chunk.ids) for queue, chunk in chunks)), kind)
    if name == "id":
        return texts(list(chain.from_iterable(chunk.ids for _, chunk in chunks)), kind)
    if name == "state":
        return pa.array(list(chain.from_iterable(chunk.states for _, chunk in chunks)), kind)
    if name == "runAt":
        return _times(pa.array(list(chain.from_iterable(chunk.run_at for _, chunk in chunks)), pa.int64()), kind)
    return column_of(name, list(chain.from_iterable(chunk.column(name) for _, chunk in chunks)), kind)


def column_of(name: str, raws: Sequence[Raw], kind: pa.DataType) -> pa.Array:
    """Converts raw values of one of FIELDS to a column of this type."""
    field = FIELDS[name]
    if name in TYPED_COLUMNS and not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return values_of(raws, kind)
    if field.kind == "traces":
        return pa.array([traces_of(raw) if raw else () for raw in raws], kind)
    if field.kind == "time":
        return _times(_integers(raws, pa.int64(), field.default), kind)
    if field.kind in NUMBERS:
        numbers = _integers(raws, kind, field.default)
        return _stalls(numbers) if field.kind == "stalls" else numbers
    if field.kind == "json":
        raws = [None if raw in NO_VALUE else raw for raw in raws]
    return texts(raws, kind)


def texts(raws: Sequence[Raw], kind: pa.DataType) -> pa.Array:
    """Converts raw strings to a column; invalid UTF-8 gets replacement characters."""
    try:
        return pa.array(raws, kind)
    except pa.ArrowInvalid:
        return pa.array([text_of(raw) for raw in raws], kind)


def _integers(raws: Sequence[Raw], kind: pa.DataType, default: int | None) -> pa.Array:
    try:
        numbers = pc.cast(pa.array(raws, pa.string()), kind)
    except pa.ArrowInvalid:
        limit = 2 ** (kind.bit_width - 1)
        numbers = pa.array([_within(integer_of(raw), limit) for raw in raws], kind)
    return numbers if default is None else pc.fill_null(numbers, default)


def _stalls(counters: pa.Array) -> pa.Array:
    """As `stalls_of`; most jobs have not stalled."""
    is_preset = pc.greater_equal(counters, STALLED_PRESET)
    if not pc.any(is_preset).as_py():
        return counters
    return pc.if_else(is_preset, pc.subtract(counters, STALLED_PRESET), counters).cast(counters.type)


def _times(numbers: pa.Array, kind: pa.DataType) -> pa.Array:
    """Converts ms since 1970 to timestamps; values after the year 9999 become null."""
    in_range = pc.less_equal(pc.abs(numbers), LAST_MS)
    micros = pc.multiply(pc.if_else(in_range, numbers, pa.scalar(None, pa.int64())), 1000)
    return micros.view(kind)


def _within(number: int | None, limit: int) -> int | None:
    return number if number is not None and -limit <= number < limit else None
