"""Converts JSON texts to an Arrow array of values, as Spark's `from_json` does: what does not match is null."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql.types import VariantVal

from spark_bull.dialects.fields import Raw
from spark_bull.error_text import sendable
from spark_bull.spark.json.json_text import is_text, is_variant
from spark_bull.spark.json.payload import converter

Read: TypeAlias = Callable[[Any], Any]


def values_of(raws: Sequence[Raw], kind: pa.DataType) -> pa.Array:
    """Parses texts. A text that is not JSON is null, as is each value in it that has another type than `kind` says.

    So are a text of a thousand levels, which Python does not parse, and a value that is larger than a VARIANT may be.

    Missing members of objects are null, unknown ones are dropped. Where the type is STRING, other values are their JSON
    text. Times are ISO 8601 text (UTC if there is no offset) or ms since 1970; binary is base64. Unpaired surrogates,
    which UTF-8 lacks, become U+FFFD.
    """
    read = _reader(kind)
    try:
        return pa.array([read(_parsed(raw)) for raw in raws], kind)
    except UnicodeEncodeError:
        return pa.array([read(_encodable(_parsed(raw))) for raw in raws], kind)


def _parsed(raw: Raw | str) -> Any:
    try:
        return None if raw is None else json.loads(raw)
    except (ValueError, RecursionError):
        return None


def _encodable(value: Any) -> Any:
    return _parsed(sendable(_json_text(value) or "null", sys.maxsize))


def _reader(kind: pa.DataType) -> Read:
    """Returns the function that converts parsed JSON to what Arrow takes for this type."""
    if is_variant(kind):
        return _variant
    if pa.types.is_struct(kind):
        return _struct(kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        item = _reader(kind.value_type)
        return lambda value: [item(one) for one in value] if isinstance(value, list) else None
    if pa.types.is_map(kind):
        item = _reader(kind.item_type)
        return lambda value: [(key, item(one)) for key, one in value.items()] if isinstance(value, dict) else None
    if is_text(kind):
        return _text
    if pa.types.is_boolean(kind):
        return lambda value: value if isinstance(value, bool) else None
    if pa.types.is_integer(kind):
        return _integer(2 ** (kind.bit_width - 1))
    if pa.types.is_floating(kind):
        return _double
    return _checked(converter(kind), kind)


def _struct(kind: pa.DataType) -> Read:
    readers = {field.name: _reader(field.type) for field in (kind.field(i) for i in range(kind.num_fields))}

    def read(value: Any) -> dict[str, Any] | None:
        if not isinstance(value, dict):
            return None
        return {name: reader(value.get(name)) for name, reader in readers.items()}

    return read


def _variant(value: Any) -> dict[str, bytes] | None:
    if value is None:
        return None
    try:
        built = VariantVal.parseJson(json.dumps(value))
    except UnicodeEncodeError:
        raise
    except (ValueError, RecursionError):
        # Larger than a VARIANT may be, for which PySpark 4.0 raises no error of its own; or nested too deeply.
        return None
    return {"value": built.value, "metadata": built.metadata}


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else _json_text(value)


def _json_text(value: Any) -> str | None:
    """The JSON text of what was parsed; None for the few levels that Python can parse, but not write."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        return None


def _integer(limit: int) -> Read:
    def read(value: Any) -> int | None:
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        return value if is_integer and -limit <= value < limit else None

    return read


def _double(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _checked(convert: Read | None, kind: pa.DataType) -> Read:
    """For types whose values can be wrong in more ways than one: converts each alone."""

    def read(value: Any) -> Any:
        try:
            converted = value if convert is None else convert(value)
            pa.scalar(converted, kind)
        except (pa.ArrowException, TypeError, ValueError, ArithmeticError, AttributeError, OSError):
            return None
        return converted

    return read
