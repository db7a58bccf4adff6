"""Payloads that Arrow parses from texts to an array of the type given by `payload_schema`, in half of the time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from spark_bull.spark.json.json_text import are_in_braces, joined_lines, parsed_lines
from spark_bull.spark.platform.lazy_arrow import pa, pc

#: Below this each whole number is one of the type DOUBLE.
_EXACT: Final = 2.0**53


def array_of_texts(texts: Sequence[str], kind: pa.DataType) -> pa.Array | None:
    """Parses payloads, JSON texts, to the array that `payload_array` returns, in half of the time.

    None for other types than structs of texts, booleans and numbers, and for texts that Arrow's parser rejects or may
    read otherwise: it takes none for valid that is not JSON.
    """
    # As many objects as texts in braces means one object per text: see json_text.py.
    if not _is_parsed(kind) or not all(text[:1] == "{" and text[-1:] == "}" for text in texts):
        return None
    try:
        return _array_of_lines(pa.py_buffer("\n".join(texts).encode()), len(texts), kind)
    except UnicodeEncodeError:
        return None


def array_of_column(texts: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """The same for a column of texts, which do not become objects of Python."""
    if not _is_parsed(kind) or not are_in_braces(texts):
        return None
    return _array_of_lines(joined_lines(texts), len(texts), kind)


def _is_parsed(kind: pa.DataType) -> bool:
    return bool(pa.types.is_struct(kind)) and kind.num_fields > 0 and all(map(_is_parsed_alike, kind))


def _array_of_lines(lines: pa.Buffer, count: int, kind: pa.DataType) -> pa.Array | None:
    table = parsed_lines(lines, pa.schema([*kind]))
    if table is None or table.num_rows != count:
        return None
    batch = table.combine_chunks().to_batches()[0]
    if any(pa.types.is_floating(column.type) and _is_inexact(column) for column in batch.columns):
        return None
    return pa.StructArray.from_arrays(batch.columns, fields=[*kind])


def _is_parsed_alike(field: pa.Field) -> bool:
    kind = field.type
    return bool(
        pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_float64(kind) or pa.types.is_string(kind)
    )


def _is_inexact(column: pa.Array) -> bool:
    """Whether whole numbers may have been rounded, which `payload_array` refuses."""
    return bool((pc.max(pc.abs(column)).as_py() or 0) >= _EXACT)
