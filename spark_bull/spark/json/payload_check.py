"""Checks JSON texts against the type in the option `payloadSchema`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    VariantType,
)

from spark_bull.core.errors import OptionError
from spark_bull.core.well_formed import well_formed
from spark_bull.spark.json.json_text import MAX_SHOWN
from spark_bull.spark.json.json_values import WrongPayload, payload_array
from spark_bull.spark.json.types import is_inferred, parse_type
from spark_bull.spark.platform.arrow import to_arrow_type
from spark_bull.spark.platform.lazy_arrow import pa

_OPTION: Final = "payloadSchema"
_MISSING: Final = object()
#: Finds the first value that does not match: its path from the value, and what it is instead.
Find: TypeAlias = Callable[[Any], "Mismatch | None"]
_NAMES: Final = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}


@dataclass(frozen=True)
class Mismatch:
    """path: behind `$`, as in JSONPath. expected: a type in SQL. value: what is there instead."""

    path: str
    expected: str
    value: Any

    def __str__(self) -> str:
        if self.value is _MISSING:
            return f"expected `${self.path}` to be {self.expected}, got none"
        shown = json.dumps(self.value, ensure_ascii=False)
        more = "…" if len(shown) > MAX_SHOWN else ""
        kind = _NAMES.get(type(self.value), "a number")
        return f"expected `${self.path}` to be {self.expected}, got {kind}: {shown[:MAX_SHOWN]}{more}"


@dataclass(frozen=True)
class PayloadCheck:
    """Checks payloads against a type. Members of objects that the type does not name are allowed."""

    kind: DataType

    def check(self, texts: Sequence[str | None], numbers: Sequence[int | str]) -> None:
        """Raises OptionError for the first payload that does not match. numbers: row numbers, for errors."""
        find = _finder(self.kind)
        for text, number in zip(texts, numbers, strict=True):
            if text is not None and (found := _found(find, text)):
                raise OptionError(f"row {number}: {found}")


def _found(find: Find, text: str) -> str:
    """What does not match in a text; empty: nothing."""
    try:
        mismatch = find(json.loads(text))
        return well_formed(f"{mismatch}; option `{_OPTION}` has the types of `data`") if mismatch else ""
    except (ValueError, RecursionError) as error:
        shown = text[:MAX_SHOWN] + ("…" if len(text) > MAX_SHOWN else "")
        return (
            f"expected `data` to be JSON that can be checked, got: {shown!r} ({error}); nest less deeply, or leave out "
            f"the option `{_OPTION}`"
        )


def payload_check(text: str | None) -> PayloadCheck | None:
    """The check that the option asks for, if any. Raises OptionError for a text that is no type."""
    if is_inferred(text):
        raise OptionError(f"expected `{_OPTION}` of a write to be a type, got: {text!r}, which is for reads")
    return None if text is None else PayloadCheck(parse_type(_OPTION, text))


def _finder(kind: DataType, *, nullable: bool = True) -> Find:
    """Returns the function that finds the first value that does not match a type."""
    expected = kind.simpleString().split("<")[0].upper() + ("" if nullable else " NOT NULL")
    accepts, members = _accepts(kind), _members(kind)

    def find(value: Any) -> Mismatch | None:
        if value is None or value is _MISSING:
            return None if nullable else Mismatch("", expected, value)
        if not accepts(value):
            return Mismatch("", expected, value)
        for step, find_in, member in members(value):
            if found := find_in(member):
                return Mismatch(step + found.path, found.expected, found.value)
        return None

    return find


def _members(kind: DataType) -> Callable[[Any], Iterable[tuple[str, Find, Any]]]:
    """Returns the function that lists what is in a value: the path to it, and what checks it."""
    if isinstance(kind, StructType):
        finders = {field.name: _finder(field.dataType, nullable=field.nullable) for field in kind}
        return lambda value: ((f".{name}", find, value.get(name, _MISSING)) for name, find in finders.items())
    if isinstance(kind, ArrayType):
        of_item = _finder(kind.elementType)
        return lambda value: ((f"[{index}]", of_item, item) for index, item in enumerate(value))
    if isinstance(kind, MapType):
        of_value = _finder(kind.valueType)
        return lambda value: ((f".{name}", of_value, member) for name, member in value.items())
    return lambda _: ()


def _accepts(kind: DataType) -> Callable[[Any], bool]:
    """Returns whether a JSON value, without regard to what is in it, is of a type."""
    if isinstance(kind, VariantType):
        return lambda _: True
    if isinstance(kind, (StructType, MapType)):
        return lambda value: isinstance(value, dict)
    if isinstance(kind, ArrayType):
        return lambda value: isinstance(value, list)
    if isinstance(kind, StringType):
        return lambda value: isinstance(value, str)
    if isinstance(kind, BooleanType):
        return lambda value: isinstance(value, bool)
    if isinstance(kind, (FloatType, DoubleType)):
        return lambda value: isinstance(value, (int, float)) and not isinstance(value, bool)
    arrow = to_arrow_type(kind)
    if isinstance(kind, IntegralType):
        limit = 2 ** (arrow.bit_width - 1)
        return lambda value: type(value) is int and -limit <= value < limit
    return lambda value: _converts(value, arrow)


def _converts(value: Any, kind: pa.DataType) -> bool:
    """Times, decimals and binary data have several forms in JSON."""
    try:
        payload_array([value], kind)
    except WrongPayload:
        return False
    return True
