"""Raw values of jobs' hashes -> Arrow columns, a whole column at a time.

The fast way takes what the Node libraries write. What it can't take goes the slow way of dialects.fields, one by one:
nothing that stands in a hash ends a read.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from spark_bull.dialects.fields import FIELDS, NO_VALUE, NUMBERS, Raw, integer_of, text_of, traces_of
from spark_bull.queue.read import Chunk

#: The last ms of the year 9999, beyond which neither Spark nor Python prints a time.
LAST_MS: Final = 253_402_300_799_999


def batch_of(chunks: Sequence[tuple[str, Chunk]], columns: Sequence[str], schema: pa.Schema) -> pa.RecordBatch:
    """The jobs of some chunks, each with the name of its queue, as one batch of exactly this schema."""
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
    """Raw values of one of FIELDS as a column of this type."""
    field = FIELDS[name]
    if field.kind == "traces":
        return pa.array([traces_of(raw) for raw in raws], kind)
    if field.kind == "time":
        return _times(_integers(raws, pa.int64(), field.default), kind)
    if field.kind in NUMBERS:
        return _integers(raws, kind, field.default)
    if field.kind == "json":
        raws = [None if raw in NO_VALUE else raw for raw in raws]
    return texts(raws, kind)


def texts(raws: Sequence[Raw], kind: pa.DataType) -> pa.Array:
    """Raw texts as a column; what is not UTF-8 gets replacement characters."""
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


def _times(numbers: pa.Array, kind: pa.DataType) -> pa.Array:
    """ms since 1970 as times; those beyond the year 9999 as null."""
    sane = pc.less_equal(pc.abs(numbers), LAST_MS)
    micros = pc.multiply(pc.if_else(sane, numbers, pa.scalar(None, pa.int64())), 1000)
    return micros.view(kind)


def _within(number: int | None, limit: int) -> int | None:
    return number if number is not None and -limit <= number < limit else None
