"""Types of payloads and results: as text in SQL, and inferred from texts of JSON; and the check of JSON texts
against the type in the option `payloadSchema`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, TypeAlias

from pyspark.sql import types

from spark_bull.core.errors import OptionError
from spark_bull.core.well_formed import well_formed
from spark_bull.spark.json.json_text import MAX_SHOWN
from spark_bull.spark.json.json_values import WrongPayload, payload_array
from spark_bull.spark.platform.arrow import to_arrow_type
from spark_bull.spark.platform.lazy_arrow import pa

_PLAIN: Final = (
    *(types.StringType(), types.BooleanType(), types.ByteType(), types.ShortType(), types.IntegerType()),
    *(types.LongType(), types.FloatType(), types.DoubleType(), types.DateType(), types.TimestampType()),
    *(types.TimestampNTZType(), types.BinaryType(), types.VariantType()),
)
_OTHER_NAMES: Final = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "timestamp_ltz": "timestamp",
}
_OF_NAME: Final[dict[str, types.DataType]] = {kind.simpleString(): kind for kind in _PLAIN}
_TYPES: Final[dict[str, types.DataType]] = {
    **_OF_NAME,
    **{other: _OF_NAME[name] for other, name in _OTHER_NAMES.items()},
    # PySpark 4.0 lacks it.
    **({"time": types.TimeType()} if hasattr(types, "TimeType") else {}),
}
_DECIMALS: Final = ("decimal", "dec", "numeric")
_SIZED: Final = ("char", "character", "varchar")
_TOKEN: Final = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\w+|[<>(),:]|\S")
#: A text that is one type.
_TYPE: Final = re.compile(
    rf"{'|'.join(_TYPES)}|(?:{'|'.join(_DECIMALS)})\s*(?:\(.*\))?|(?:struct|array|map)\s*<.*", re.IGNORECASE | re.DOTALL
)


def ddl_of(option: str, text: str) -> str:
    """Returns the type of a column in SQL: the text, if it is a type, else a STRUCT with these columns.

    Raises OptionError for texts with a length, which PySpark does not take from a data source.
    """
    given = text.strip()
    for word, following in pairwise(_TOKEN.findall(given)):
        if word.lower() in _SIZED and following == "(":
            raise OptionError(f"expected `{option}` to have STRING instead of {word}(…), got: {given!r}")
    return given if _TYPE.fullmatch(given) else f"STRUCT<{given}>"


def parse_type(option: str, text: str) -> types.DataType:
    """Parses a type, or columns as DDL, as the options `payloadSchema` and `returnSchema` take them.

    Raises OptionError that names the option and the place.
    """
    parser = _Parser(option, ddl_of(option, text))
    kind = parser.type()
    parser.expect("")
    return kind


class _Parser:
    """Reads tokens from left to right; "" is the end."""

    def __init__(self, option: str, text: str) -> None:
        self._option, self._text = option, text
        self._tokens = [*_TOKEN.findall(text), ""]

    def type(self) -> types.DataType:
        name = self._next().lower()
        if name == "struct":
            self.expect("<")
            return types.StructType(self._fields())
        if name == "array":
            self.expect("<")
            item = self.type()
            self.expect(">")
            return types.ArrayType(item)
        if name == "map":
            self.expect("<")
            key = self.type()
            self.expect(",")
            value = self.type()
            self.expect(">")
            return types.MapType(key, value)
        if name in _DECIMALS:
            return self._decimal()
        if name not in _TYPES:
            raise self._error(f"a type, got {name!r}")
        return _TYPES[name]

    def expect(self, token: str) -> None:
        if (found := self._next()) != token:
            raise self._error(f"{token!r}, got {found!r}" if token else f"the end, got {found!r}")

    def _next(self) -> str:
        return self._tokens.pop(0) if len(self._tokens) > 1 else ""

    def _taken(self, *words: str) -> bool:
        """Takes the next tokens if they are these words."""
        if [token.lower() for token in self._tokens[: len(words)]] != list(words):
            return False
        del self._tokens[: len(words)]
        return True

    def _fields(self) -> list[types.StructField]:
        fields: list[types.StructField] = []
        while not self._taken(">"):
            if fields:
                self.expect(",")
            name = self._next()
            self._taken(":")
            kind = self.type()
            required = self._taken("not", "null")
            if self._taken("comment"):
                self._next()
            plain = name[1:-1].replace("``", "`") if name.startswith("`") else name
            fields.append(types.StructField(plain, kind, not required))
        return fields

    def _decimal(self) -> types.DecimalType:
        if not self._taken("("):
            return types.DecimalType()
        precision, scale = self._number(), 0
        if self._taken(","):
            scale = self._number()
        self.expect(")")
        return types.DecimalType(precision, scale)

    def _number(self) -> int:
        found = self._next()
        if not found.isdecimal():
            raise self._error(f"a number, got {found!r}")
        return int(found)

    def _error(self, expected: str) -> OptionError:
        return OptionError(
            f"expected `{self._option}` to be columns as DDL or a type of SQL, such as 'to STRING NOT NULL, n INT'; "
            f"got: {self._text!r} (expected {expected})"
        )


#: Columns of jobs that can be read as values, and the options with their types.
TYPED_COLUMNS: Final[Mapping[str, str]] = {"data": "payloadSchema", "returnvalue": "returnSchema"}
#: Value of the options: infer the type from a sample of jobs.
INFER: Final = "infer"


def is_inferred(text: str | None) -> bool:
    """Whether the value of an option asks for the type of the jobs in a sample."""
    return text is not None and text.strip().lower() == INFER


@dataclass
class _Seen:
    """What values were seen in one place. JSON has no other types."""

    names: set[str] = field(default_factory=set)
    fields: dict[str, _Seen] = field(default_factory=dict)
    items: _Seen | None = None

    def add(self, value: Any) -> None:
        if isinstance(value, dict):
            self.names.add("STRUCT")
            for name, member in value.items():
                self.fields.setdefault(well_formed(name), _Seen()).add(member)
        elif isinstance(value, list):
            self.names.add("ARRAY")
            self.items = self.items or _Seen()
            for item in value:
                self.items.add(item)
        elif isinstance(value, bool):
            self.names.add("BOOLEAN")
        elif isinstance(value, int):
            self.names.add("BIGINT" if -(2**63) <= value < 2**63 else "DOUBLE")
        elif isinstance(value, float):
            self.names.add("DOUBLE")
        elif value is not None:
            self.names.add("STRING")

    def ddl(self) -> str:
        if self.names == {"STRUCT"} and self.fields:
            members = (f"`{name.replace('`', '``')}`: {seen.ddl()}" for name, seen in self.fields.items())
            return f"STRUCT<{', '.join(members)}>"
        if self.names == {"ARRAY"} and self.items is not None:
            return f"ARRAY<{self.items.ddl()}>"
        if self.names == {"BIGINT", "DOUBLE"}:
            return "DOUBLE"
        return self.names.pop() if len(self.names) == 1 and self.names <= {"BOOLEAN", "BIGINT", "DOUBLE"} else "STRING"


def inferred(texts: Iterable[str | bytes]) -> str | None:
    """Returns the type of JSON values in SQL: numbers are BIGINT or DOUBLE; values of several types are STRING.

    Texts that are not JSON are left out; None if there is no other.
    """
    seen = _Seen()
    found = False
    for text in texts:
        try:
            seen.add(json.loads(text))
        except ValueError:
            continue
        found = True
    return seen.ddl() if found else None


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

    kind: types.DataType

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


def _finder(kind: types.DataType, *, nullable: bool = True) -> Find:
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


def _members(kind: types.DataType) -> Callable[[Any], Iterable[tuple[str, Find, Any]]]:
    """Returns the function that lists what is in a value: the path to it, and what checks it."""
    if isinstance(kind, types.StructType):
        finders = {field.name: _finder(field.dataType, nullable=field.nullable) for field in kind}
        return lambda value: ((f".{name}", find, value.get(name, _MISSING)) for name, find in finders.items())
    if isinstance(kind, types.ArrayType):
        of_item = _finder(kind.elementType)
        return lambda value: ((f"[{index}]", of_item, item) for index, item in enumerate(value))
    if isinstance(kind, types.MapType):
        of_value = _finder(kind.valueType)
        return lambda value: ((f".{name}", of_value, member) for name, member in value.items())
    return lambda _: ()


def _accepts(kind: types.DataType) -> Callable[[Any], bool]:
    """Returns whether a JSON value, without regard to what is in it, is of a type."""
    if isinstance(kind, types.VariantType):
        return lambda _: True
    if isinstance(kind, (types.StructType, types.MapType)):
        return lambda value: isinstance(value, dict)
    if isinstance(kind, types.ArrayType):
        return lambda value: isinstance(value, list)
    if isinstance(kind, types.StringType):
        return lambda value: isinstance(value, str)
    if isinstance(kind, types.BooleanType):
        return lambda value: isinstance(value, bool)
    if isinstance(kind, (types.FloatType, types.DoubleType)):
        return lambda value: isinstance(value, (int, float)) and not isinstance(value, bool)
    arrow = to_arrow_type(kind)
    if isinstance(kind, types.IntegralType):
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
