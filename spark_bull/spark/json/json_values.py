"""The values of JSON as Arrow arrays: the one table of the types that payloads and results are read as.

Values of VARIANT are what PySpark makes of JSON. Times are ISO 8601 text (UTC if there is no offset) or ms since 1970;
binary is base64. Missing members of objects are null, unknown ones are dropped.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import Any, Final, TypeAlias

from pyspark.errors import PySparkException
from pyspark.sql.types import DataType, VariantVal

from spark_bull.core.clock import moment_of
from spark_bull.core.dialects.fields import Raw
from spark_bull.core.errors import SparkBullError, expected
from spark_bull.core.well_formed import well_formed_json
from spark_bull.spark.json.json_text import MAX_SHOWN, are_in_braces, is_text, is_variant, joined_lines, parsed_lines
from spark_bull.spark.platform.arrow import to_arrow_type
from spark_bull.spark.platform.lazy_arrow import pa, pc

Read: TypeAlias = Callable[[Any], Any]
#: What a value that is wrong for a type may raise; Arrow has errors of its own.
_WRONG: Final = (TypeError, ValueError, ArithmeticError, AttributeError, OSError, RecursionError)


class WrongPayload(SparkBullError):
    """The payload of a job does not match `payload_schema`."""


def payload_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Converts parsed payloads to an array. Raises WrongPayload for a value of another type."""
    try:
        return _array(values, _reader(kind), kind)
    except (pa.ArrowException, *_WRONG) as error:
        shown = json.dumps(values[0])[:MAX_SHOWN] if len(values) == 1 else f"{len(values)} payloads"
        raise WrongPayload(f"expected the payload to match the schema {kind} ({error}), got: {shown}") from None


def values_of(raws: Sequence[Raw], kind: pa.DataType) -> pa.Array:
    """Parses texts, as Spark's `from_json` does: what is not JSON is null, as is a value in it of another type.

    So are a text of a thousand levels, which Python does not parse, and a value that is larger than a VARIANT may be.
    Where the type is STRING, other values are their JSON text.
    """
    return _array([_parsed(raw) for raw in raws], _reader(kind, lenient=True), kind)


def check_type(option: str, kind: DataType) -> None:
    """Raises OptionError, with the name of the option, for a type that JSON has no values of."""
    try:
        _reader(to_arrow_type(kind))
    except (PySparkException, TypeError):
        raise expected(option, "of types that JSON has values of", kind.simpleString()) from None


def _array(values: Sequence[Any], read: Read | None, kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values if read is None else [read(value) for value in values], kind)
    except UnicodeEncodeError:
        return _array([_parsed(well_formed_json(_json_text(value) or "null")) for value in values], read, kind)


def _parsed(raw: Raw | str) -> Any:
    try:
        return None if raw is None else json.loads(raw)
    except (ValueError, RecursionError):
        return None


def _json_text(value: Any, **form: Any) -> str | None:
    """The JSON text of what was parsed; None for the few levels that Python can parse, but not write."""
    try:
        return json.dumps(value, **form)
    except RecursionError:
        return None


def _reader(kind: pa.DataType, *, lenient: bool = False) -> Read | None:
    """Returns the function that converts parsed JSON to what Arrow takes for a type; None: Arrow takes JSON for it.

    lenient: whether a value of another type is null; otherwise the function, or Arrow, raises an error for it.
    Raises TypeError for a type that JSON has no values of.
    """
    if is_variant(kind) or not pa.types.is_nested(kind):
        convert = _converter(kind)
        if lenient:
            return _as_plain(kind) or _as_null(convert, kind)
        return convert and _nullable(convert)
    if pa.types.is_struct(kind):
        members = {kind.field(i).name: _reader(kind.field(i).type, lenient=lenient) for i in range(kind.num_fields)}
        return _of(dict, _members(members), lenient=lenient) if lenient or any(members.values()) else None
    item = _reader(kind.item_type if pa.types.is_map(kind) else kind.value_type, lenient=lenient) or _identity
    if pa.types.is_map(kind):
        if not is_text(kind.key_type):
            raise TypeError(f"JSON has no names of {kind.key_type}")
        return _of(dict, lambda value: [(key, item(one)) for key, one in value.items()], lenient=lenient)
    return _of(list, lambda value: [item(one) for one in value], lenient=lenient)


def _converter(kind: pa.DataType) -> Read | None:
    """The function for values of a type without members; None: Arrow takes them from JSON."""
    types = pa.types
    if is_variant(kind):
        return _variant
    if types.is_timestamp(kind):
        return _timestamp
    if types.is_date(kind):
        return lambda value: date.fromisoformat(value[:10])
    if types.is_time(kind):
        return time.fromisoformat
    if types.is_decimal(kind):
        return lambda value: Decimal(str(value))
    if types.is_binary(kind) or types.is_large_binary(kind):
        return base64.b64decode
    if is_text(kind) or types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        return None
    raise TypeError(f"JSON has no values of {kind}")


def _as_plain(kind: pa.DataType) -> Read | None:
    """The lenient function for a type that JSON has."""
    if is_text(kind):
        return _text
    if pa.types.is_boolean(kind):
        return lambda value: value if isinstance(value, bool) else None
    if pa.types.is_integer(kind):
        return _integer(2 ** (kind.bit_width - 1))
    return _double if pa.types.is_floating(kind) else None


def _as_null(convert: Read | None, kind: pa.DataType) -> Read:
    """The lenient function for a type whose values can be wrong in more ways than one: converts each alone."""
    assert convert is not None

    def read(value: Any) -> Any:
        try:
            converted = None if value is None else convert(value)
            pa.scalar(converted, kind)
        except UnicodeEncodeError:
            raise
        except (pa.ArrowException, *_WRONG):
            return None
        return converted

    return read


def _of(shape: type, convert: Read, *, lenient: bool) -> Read:
    """Converts values that are of a type of Python."""

    def read(value: Any) -> Any:
        if isinstance(value, shape):
            return convert(value)
        if value is None or lenient:
            return None
        raise TypeError(f"expected {_SHAPES[shape]}")

    return read


_SHAPES: Final[Mapping[type, str]] = {dict: "an object", list: "an array"}


def _members(readers: Mapping[str, Read | None]) -> Read:
    plain = {name: read or _identity for name, read in readers.items()}
    return lambda value: {name: read(value.get(name)) for name, read in plain.items()}


def _nullable(convert: Read) -> Read:
    return lambda value: None if value is None else convert(value)


def _identity(value: Any) -> Any:
    return value


def _variant(value: Any) -> dict[str, bytes]:
    """Raises ValueError for a value that is larger than a VARIANT may be, RecursionError for one of too many levels.

    PySpark 4.0 raises no error of its own for a large one.
    """
    built = VariantVal.parseJson(json.dumps(value))
    return {"value": built.value, "metadata": built.metadata}


def _timestamp(value: Any) -> datetime:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return datetime.fromtimestamp(value / 1000, timezone.utc)
    moment = moment_of(value)
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return _json_text(value, ensure_ascii=False, separators=(",", ":"))


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


#: Below this each whole number is one of the type DOUBLE.
_EXACT: Final = 2.0**53


def array_of_texts(texts: Sequence[str], kind: pa.DataType) -> pa.Array | None:
    """Parses payloads, JSON texts, to the array that `payload_array` returns, in half of the time.

    None for other types than structs of texts, booleans and numbers, and for texts that Arrow's parser rejects or may
    read otherwise. It takes no text for valid that is not JSON.
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
