"""Converts payloads (parsed JSON) to an Arrow array of the type given by `payload_schema`."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any, Final

from spark_bull.errors import SparkBullError
from spark_bull.spark.json.json_text import MAX_SHOWN, are_in_braces, joined_lines, parsed_lines
from spark_bull.spark.platform.lazy_arrow import pa, pc

Convert = Callable[[Any], Any]

#: Below this each whole number is one of the type DOUBLE.
_EXACT: Final = 2.0**53


class WrongPayload(SparkBullError):
    """The payload of a job does not match `payload_schema`."""


def payload_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Converts parsed payloads to an Arrow array. Missing fields become null; fields unknown to the type are dropped.

    Times are ISO 8601 text (UTC if there is no offset) or ms since 1970; binary is base64. Raises WrongPayload for a
    value of another type.
    """
    convert = converter(kind)
    try:
        return pa.array(values if convert is None else [convert(value) for value in values], kind)
    except (pa.ArrowException, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        shown = json.dumps(values[0])[:MAX_SHOWN] if len(values) == 1 else f"{len(values)} payloads"
        raise WrongPayload(f"expected the payload to match the schema {kind} ({error}), got: {shown}") from None


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


def converter(kind: pa.DataType) -> Convert | None:
    """Returns the function that converts JSON values for Arrow type `kind`; None if they need no conversion."""
    if pa.types.is_timestamp(kind):
        return _nullable(_timestamp)
    if pa.types.is_date(kind):
        return _nullable(lambda value: date.fromisoformat(value[:10]))
    if pa.types.is_decimal(kind):
        return _nullable(lambda value: Decimal(str(value)))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _nullable(base64.b64decode)
    if pa.types.is_struct(kind):
        return _struct(kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _list(converter(kind.value_type))
    if pa.types.is_map(kind):
        return _map(converter(kind.item_type) or _identity)
    return None


def _list(item: Convert | None) -> Convert | None:
    return None if item is None else _nullable(lambda values: [item(value) for value in values])


def _map(item: Convert) -> Convert:
    return _nullable(lambda values: [(key, item(value)) for key, value in values.items()])


def _struct(kind: pa.DataType) -> Convert | None:
    fields = [kind.field(i) for i in range(kind.num_fields)]
    converters = {field.name: found for field in fields if (found := converter(field.type)) is not None}
    if not converters:
        return None

    def convert(value: dict[str, Any]) -> dict[str, Any]:
        return value | {name: change(value.get(name)) for name, change in converters.items()}

    return _nullable(convert)


def _nullable(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _identity(value: Any) -> Any:
    return value


def _timestamp(value: Any) -> datetime:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return datetime.fromtimestamp(value / 1000, timezone.utc)
    moment = datetime.fromisoformat(value.replace("Z", "+00:00"))
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
