"""Types in SQL, as the options `payloadSchema` and `returnSchema` have them.

A write parses them without a JVM, which the processes that plan and run it do not have.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

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
