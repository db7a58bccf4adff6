"""Types of payloads and results: as text in SQL, and inferred from texts of JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from pyspark.sql import types
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from spark_bull.core.errors import OptionError
from spark_bull.core.well_formed import well_formed

_TYPES: Final[dict[str, DataType]] = {
    "string": StringType(),
    "boolean": BooleanType(),
    "tinyint": ByteType(),
    "byte": ByteType(),
    "smallint": ShortType(),
    "short": ShortType(),
    "int": IntegerType(),
    "integer": IntegerType(),
    "bigint": LongType(),
    "long": LongType(),
    "float": FloatType(),
    "real": FloatType(),
    "double": DoubleType(),
    "date": DateType(),
    "timestamp": TimestampType(),
    "timestamp_ltz": TimestampType(),
    "timestamp_ntz": TimestampNTZType(),
    "binary": BinaryType(),
    "variant": VariantType(),
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


def parse_type(option: str, text: str) -> DataType:
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

    def type(self) -> DataType:
        name = self._next().lower()
        if name == "struct":
            self.expect("<")
            return StructType(self._fields())
        if name == "array":
            self.expect("<")
            item = self.type()
            self.expect(">")
            return ArrayType(item)
        if name == "map":
            self.expect("<")
            key = self.type()
            self.expect(",")
            value = self.type()
            self.expect(">")
            return MapType(key, value)
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

    def _fields(self) -> list[StructField]:
        fields: list[StructField] = []
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
            fields.append(StructField(plain, kind, not required))
        return fields

    def _decimal(self) -> DecimalType:
        if not self._taken("("):
            return DecimalType()
        precision, scale = self._number(), 0
        if self._taken(","):
            scale = self._number()
        self.expect(")")
        return DecimalType(precision, scale)

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
