"""Converts Arrow columns to JSON text, one column at a time, and validates JSON text.

Types that JSON lacks are converted as by Spark's `to_json` and JavaScript's `JSON.stringify`. Times become ISO 8601
with milliseconds, in UTC if they have a time zone; years have four digits, or six with a sign. Binary becomes base64,
NaN and infinities become null.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from spark_bull.core.errors import OptionError
from spark_bull.core.model.job_json import strict_json
from spark_bull.spark.platform.arrow import variant_encoder
from spark_bull.spark.platform.lazy_arrow import pa, pc, pj

#: The largest distance from 1970 that a time of JavaScript has, ms.
MAX_MS: Final = 8_640_000_000_000_000
_DAY_MS: Final = 86_400_000
#: After 400 years, the calendar repeats.
_CYCLE_YEARS: Final = 400
_CYCLE_MS: Final = 146_097 * _DAY_MS
#: The years 0 to 9999, as ms since 1970.
_FOUR_DIGITS: Final = range(-62_167_219_200_000, 253_402_300_800_000)


def ms_of(array: pa.Array) -> pa.Array:
    """Timestamps as whole ms since 1970, rounded down.

    The time zone, which may repeat an hour or be unknown to Arrow, does not matter.
    """
    us = pc.cast(array.view(pa.timestamp(array.type.unit)), pa.timestamp("us"), safe=False).view(pa.int64())
    ms = pc.divide(us, 1000)
    return pc.subtract(ms, pc.cast(pc.greater(pc.multiply(ms, 1000), us), pa.int64()))


def time_texts(array: pa.Array, name: str) -> pa.Array:
    """The texts of timestamps. name: of their field, for the OptionError about a time that JavaScript can't read."""
    zone = "" if array.type.tz is None else "Z"
    return _texts(ms_of(array), f"%Y-%m-%dT%H:%M:%S{zone}", lambda ms: time_text(name, ms) + zone)


def date_texts(array: pa.Array, name: str) -> pa.Array:
    """The texts of dates, in days (`date32`). name: as above."""
    ms = pc.multiply(pc.cast(array.view(pa.int32()), pa.int64()), _DAY_MS)
    return _texts(ms, "%Y-%m-%d", lambda ms: date_text(name, ms // _DAY_MS))


def time_text(name: str, ms: int) -> str:
    """The text of a time without a zone, in ms since 1970; raises OptionError for one that JavaScript can't read."""
    if abs(ms) > MAX_MS:
        raise OptionError(
            f"expected each time in `{name}` to be one that JavaScript can read (years -271821 to 275760), got "
            f"one {ms} ms after 1970: write it as a number or a STRING"
        )
    cycles, rest = divmod(ms, _CYCLE_MS)
    moment = datetime(1970, 1, 1) + timedelta(milliseconds=rest)
    year = moment.year + cycles * _CYCLE_YEARS
    digits = f"{year:04}" if 0 <= year <= 9999 else f"{year:+07}"
    return digits + moment.isoformat(timespec="milliseconds")[4:]


def date_text(name: str, days: int) -> str:
    """The text of a date, in days since 1970; raises as `time_text`."""
    return time_text(name, days * _DAY_MS).partition("T")[0]


def _texts(ms: pa.Array, pattern: str, text_of: Callable[[int], str]) -> pa.Array:
    bounds: dict[str, Any] = pc.min_max(ms).as_py()
    if all(bound is None or bound in _FOUR_DIGITS for bound in bounds.values()):
        # Arrow has no years of six digits, and leaves the zone of the pattern as it is.
        return pc.strftime(ms.view(pa.timestamp("ms")), pattern)
    return pa.array([None if one is None else text_of(one) for one in ms.to_pylist()], pa.string())


#: Maximum characters of invalid text in an error.
MAX_SHOWN: Final = 200

_CONTROL_CHARACTERS: Final = r"[\x00-\x1f]"
_ESCAPED: Final = r'[\x00-\x1f"\\]'
_ESCAPED_BYTES: Final = bytes(range(32)) + b'"\\'


def to_json(array: pa.Array, field: pa.Field, *, ignore_nulls: bool) -> pa.Array:
    """Converts each value to JSON text; null values stay null.

    array: of any type that `is_encodable` accepts. ignore_nulls: whether to omit null fields of structs. Raises
    OptionError for a time that JavaScript can't read, and a VARIANT of too many levels.
    """
    kind = array.type
    if array.null_count == len(array):
        return pa.nulls(len(array), pa.string())
    if is_variant(kind):
        return _variants(array, field.name)
    if pa.types.is_struct(kind):
        return _struct(array, ignore_nulls=ignore_nulls)
    if pa.types.is_map(kind):
        return _map(array, ignore_nulls=ignore_nulls)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _list(array, ignore_nulls=ignore_nulls)
    return _scalar(array, field.name)


def to_json_arrays(arrays: Sequence[pa.Array], fields: Sequence[pa.Field]) -> pa.Array:
    """Converts the values of each row to the JSON text of an array, with objects without members that are null."""
    texts = [to_json(array, field, ignore_nulls=True) for array, field in zip(arrays, fields, strict=True)]
    return _join("[", pc.binary_join_element_wise(*(pc.fill_null(text, "null") for text in texts), ","), "]")


def is_encodable(field: pa.Field) -> bool:
    """Whether `to_json` supports the type, including nested types."""
    kind = field.type
    if is_variant(kind):
        return True
    if pa.types.is_struct(kind):
        return all(is_encodable(kind.field(i)) for i in range(kind.num_fields))
    if pa.types.is_map(kind):
        return _is_scalar(kind.key_type) and is_encodable(kind.item_field) and not _has_void(kind.item_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        # An empty `array()` is supported; Arrow miscounts VOID values in nested types.
        value = kind.value_type
        return is_encodable(kind.value_field) and (pa.types.is_null(value) or not _has_void(value))
    return _is_scalar(kind)


def _has_void(kind: pa.DataType) -> bool:
    return pa.types.is_null(kind) or any(_has_void(kind.field(i).type) for i in range(kind.num_fields))


def _is_scalar(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_null(kind)
        or types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_decimal(kind)
        or (types.is_temporal(kind) and not types.is_duration(kind) and not types.is_interval(kind))
        or is_text(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
    )


def is_text(kind: pa.DataType) -> bool:
    """Whether the values of a type are texts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_struct(kind: pa.DataType) -> bool:
    """Whether this is the Arrow type of a STRUCT, as which Arrow holds a VARIANT, too."""
    return bool(pa.types.is_struct(kind)) and not is_variant(kind)


def is_variant(kind: pa.DataType) -> bool:
    """Whether this is the Arrow type of Spark's VARIANT."""
    return bool(pa.types.is_struct(kind)) and any(
        (kind.field(i).metadata or {}).get(b"variant") == b"true" for i in range(kind.num_fields)
    )


def _variants(array: pa.Array, name: str) -> pa.Array:
    try:
        return _each(array, variant_encoder(partial(time_text, name), partial(date_text, name)))
    except RecursionError:
        raise OptionError(
            "expected each VARIANT to have at most some 200 levels, got one with more: write it as STRING, by to_json()"
        ) from None


def _scalar(array: pa.Array, name: str) -> pa.Array:
    kind = array.type
    types = pa.types
    if is_text(kind):
        return _quoted(pc.cast(array, pa.string()))
    if types.is_binary(kind) or types.is_large_binary(kind):
        return _each(array, lambda v: f'"{base64.b64encode(v).decode()}"')
    if types.is_floating(kind):
        text = pc.cast(array, pa.string())
        return pc.if_else(pc.is_finite(array), text, pa.scalar("null"))
    if types.is_timestamp(kind):
        return _join('"', time_texts(array, name), '"')
    if types.is_date32(kind):
        return _join('"', date_texts(array, name), '"')
    if types.is_temporal(kind):
        return _join('"', pc.cast(array, pa.string()), '"')
    return pc.cast(array, pa.string())


def _quoted(array: pa.Array) -> pa.Array:
    return _join('"', _escaped(array), '"')


def _escaped(array: pa.Array) -> pa.Array:
    """Escapes what strings in JSON can't contain; most columns have nothing of it."""
    if not _has_escaped_bytes(array) or not pc.any(pc.match_substring_regex(array, _ESCAPED)).as_py():
        return array
    if pc.any(pc.match_substring_regex(array, _CONTROL_CHARACTERS)).as_py():
        return _each(array, lambda v: json.dumps(v, ensure_ascii=False)[1:-1])
    return pc.replace_substring(pc.replace_substring(array, "\\", "\\\\"), '"', '\\"')


def _has_escaped_bytes(array: pa.StringArray) -> bool:
    """Whether the memory of a column has such bytes: ten times as fast as a search in each text."""
    memory = memory_of(array)
    return len(memory.translate(None, _ESCAPED_BYTES)) < len(memory)


def memory_of(array: pa.Array) -> bytes:
    """The values of an array of texts or bytes, one behind the other."""
    _, offsets, values = array.buffers()
    if not len(array) or values is None:
        return b""
    bounds = pa.Array.from_buffers(pa.int32(), len(array) + 1, [None, offsets], offset=array.offset)
    first, behind = bounds[0].as_py(), bounds[-1].as_py()
    memory: bytes = values.slice(first, behind - first).to_pybytes()
    return memory


def _struct(array: pa.StructArray, *, ignore_nulls: bool) -> pa.Array:
    kind = array.type
    if kind.num_fields == 0:
        return _where_valid(array, pa.array(["{}"] * len(array), pa.string()))
    names = [json.dumps(kind.field(i).name, ensure_ascii=False) for i in range(kind.num_fields)]
    texts = [to_json(values, kind.field(i), ignore_nulls=ignore_nulls) for i, values in enumerate(array.flatten())]
    if not ignore_nulls:
        texts = [pc.fill_null(text, "null") if text.null_count else text for text in texts]
    return _where_valid(array, _concatenated(["{", *_members(names, texts), "}"]))


def _members(names: Sequence[str], texts: Sequence[pa.Array]) -> list[Any]:
    """The parts of the members of objects, in turns texts and columns of texts. Members that are null are left out."""
    always = next((i for i, text in enumerate(texts) if not text.null_count), None)
    if always is None:
        return [_separated([_join(f"{name}:", text) for name, text in zip(names, texts, strict=True)])]
    # The commas belong to the others, so that they are left out with them.
    parts: list[Any] = []
    for i, (name, text) in enumerate(zip(names, texts, strict=True)):
        member = ["," * (i > always) + name + ":", text, "," * (i < always)]
        parts += [_join(*member)] if text.null_count else member
    return parts


def _separated(members: Sequence[pa.Array]) -> pa.Array:
    """Joins columns with commas, without nulls."""
    # Arrow returns null for a row of nulls only, so an empty string is put first and its comma is removed.
    joined = pc.binary_join_element_wise("", *members, ",", null_handling="skip")
    return pc.utf8_slice_codeunits(joined, 1)


def _concatenated(parts: Sequence[Any]) -> pa.Array:
    """Joins texts and columns of texts; nulls are empty."""
    merged: list[Any] = []
    for part in parts:
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        else:
            merged.append(part)
    return pc.binary_join_element_wise(*merged, "", null_handling="replace", null_replacement="")


def _list(array: pa.ListArray, *, ignore_nulls: bool) -> pa.Array:
    flat = pc.list_flatten(array)
    text = to_json(flat, array.type.value_field, ignore_nulls=ignore_nulls)
    return _where_valid(array, _join("[", _joined_lists(array, pc.fill_null(text, "null")), "]"))


def _map(array: pa.MapArray, *, ignore_nulls: bool) -> pa.Array:
    kind = array.type
    lists = pc.cast(array, pa.list_(pa.struct([kind.key_field, kind.item_field])))
    keys, items = pc.list_flatten(lists).flatten()
    names = _scalar(keys, kind.key_field.name)
    if not is_text(keys.type):
        names = _join('"', pc.replace_substring(names, '"', ""), '"')
    text = to_json(items, kind.item_field, ignore_nulls=ignore_nulls)
    pairs = pc.binary_join_element_wise(names, pc.fill_null(text, "null"), ":")
    return _where_valid(array, _join("{", _joined_lists(lists, pairs), "}"))


def _joined_lists(array: pa.Array, flat_text: pa.Array) -> pa.Array:
    """Joins the texts of each list's values with commas."""
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    ends = pc.cumulative_sum(pc.cast(lengths, pa.int64()))
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), ends])
    lists = pa.LargeListArray.from_arrays(offsets, flat_text)
    return pc.cast(pc.binary_join(lists, ","), pa.string())


def _join(*parts: Any) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _where_valid(array: pa.Array, text: pa.Array) -> pa.Array:
    if array.null_count == 0:
        return text
    return pc.if_else(pc.is_valid(array), text, pa.scalar(None, pa.string()))


def _each(array: pa.Array, encode: Any) -> pa.Array:
    return pa.array([None if v is None else encode(v) for v in array.to_pylist()], pa.string())


def is_json(text: str) -> bool:
    """Whether a text is valid JSON; NaN and Infinity are not."""
    try:
        strict_json(text)
    except (ValueError, RecursionError):
        return False
    return True


def check_json(array: pa.Array, column: str, numbers: Sequence[int | str]) -> None:
    """Raises OptionError for the first text that is not JSON, with the text. numbers: row numbers, for errors."""
    if _are_objects(array):
        return
    checked = 0
    bad = ""
    try:
        for text in array.to_pylist():
            bad = text or ""
            if text is not None:
                strict_json(text)
            checked += 1
    except (ValueError, RecursionError) as error:
        shown = bad[:MAX_SHOWN] + ("…" if len(bad) > MAX_SHOWN else "")
        raise OptionError(
            f"row {numbers[checked]}: expected `{column}` to be JSON, got: {shown!r} ({error}); "
            "use to_json(), or a STRUCT, MAP, ARRAY or VARIANT"
        ) from None


def _has_constant(text: bytes) -> bool:
    """Whether a text has a word with which the constants begin that Arrow accepts."""
    # Most texts lack the first letter, which is found far faster than the word.
    return any(word[:1] in text and word in text for word in (b"NaN", b"Inf"))


def _are_objects(array: pa.Array) -> bool:
    """Whether all texts are JSON objects according to Arrow's parser, which is five times as fast as Python's.

    The texts are parsed as lines. As many objects as lines, each in braces, means one object per line: an incomplete
    object cannot continue with the brace of the next line. False is inconclusive: NaN and infinities, which Arrow
    accepts, are excluded, and Arrow rejects some texts that Python accepts.
    """
    if not are_in_braces(array):
        return False
    parsed = parsed_lines(joined_lines(array), pa.schema([]))
    return parsed is not None and bool(parsed.num_rows == len(array))


def are_in_braces(array: pa.Array) -> bool:
    """Whether these are texts, at least one, each of which begins and ends as an object does."""
    if array.null_count or not len(array) or not pa.types.is_string(array.type):
        return False
    return bool(pc.all(pc.and_(pc.starts_with(array, "{"), pc.ends_with(array, "}"))).as_py())


def joined_lines(array: pa.Array) -> pa.Buffer:
    """Texts as lines."""
    lines = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(array)], pa.int32()), array), "\n")
    return lines[0].as_buffer()


def parsed_lines(text: pa.Buffer, fields: pa.Schema) -> pa.Table | None:
    """Parses JSON objects by Arrow, a row for each. None for texts that it rejects, and for NaN and infinities."""
    if _has_constant(text.to_pybytes()):
        return None
    reading = pj.ReadOptions(use_threads=False, block_size=text.size + 1)
    parsing = pj.ParseOptions(explicit_schema=fields, unexpected_field_behavior="ignore")
    try:
        if hasattr(pj, "open_json"):
            return pj.open_json(pa.BufferReader(text), reading, parsing).read_all()
        # Before Arrow 20. `read_json` starts a thread for each call.
        return pj.read_json(pa.BufferReader(text), reading, parsing)
    except pa.ArrowInvalid:
        return None
