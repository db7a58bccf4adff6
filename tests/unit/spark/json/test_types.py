"""The types of payloads and results: a type is read by all that reads values, or refused before anything runs."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    CharType,
    DataType,
    DayTimeIntervalType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructType,
    VarcharType,
    VariantVal,
    YearMonthIntervalType,
)

from spark_bull.errors import OptionError
from spark_bull.spark.call.call import call_plan
from spark_bull.spark.json.ddl import _TYPES, parse_type
from spark_bull.spark.json.json_values import check_type, payload_array, values_of
from spark_bull.spark.platform.arrow import to_arrow_type
from spark_bull.spark.process.udf_runner import schema_of_payload
from spark_bull.spark.schemas import columns_of

NOON = dt.datetime(2026, 3, 28, 12)
UTC = dt.timezone.utc
#: JSON, and the value, by the type in SQL.
VALUES: dict[str, tuple[str, Any]] = {
    "string": (r'"a\ud83c"', "a\ufffd"),
    "boolean": ("true", True),
    **dict.fromkeys(("tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long"), ("-7", -7)),
    **dict.fromkeys(("float", "real", "double"), ("1.5", 1.5)),
    "decimal(5, 2)": ("1.25", Decimal("1.25")),
    "date": ('"2026-03-28"', NOON.date()),
    **dict.fromkeys(("timestamp", "timestamp_ltz"), ('"2026-03-28T12:00:00Z"', NOON.replace(tzinfo=UTC))),
    "timestamp_ntz": ('"2026-03-28T12:00:00"', NOON),
    "time": ('"12:00:00"', NOON.time()),
    "binary": ('"YQ=="', b"a"),
    "variant": (r'{"a":["\ud83c"]}', {"a": ["\ufffd"]}),
    "array<int>": ("[1,null]", [1, None]),
    "map<string, int>": (r'{"\ud83c":1}', [("\ufffd", 1)]),
    "struct<a int, b string>": (r'{"b":"\ud83c","c":1}', {"a": None, "b": "\ufffd"}),
}
#: Types that JSON has no values of.
OTHERS = (
    *(YearMonthIntervalType(), DayTimeIntervalType(), CalendarIntervalType(), NullType(), CharType(3), VarcharType(3)),
    *(MapType(LongType(), StringType()), ArrayType(NullType()), StructType().add("a", DayTimeIntervalType())),
)


def plain(value: Any) -> Any:
    is_variant = isinstance(value, dict) and value.keys() == {"value", "metadata"}
    return VariantVal(value["value"], value["metadata"]).toPython() if is_variant else value


def test_each_type_has_a_value_here() -> None:
    assert set(_TYPES) <= set(VALUES)


@pytest.mark.parametrize("text", [text for text in VALUES if text != "time" or text in _TYPES])
@pytest.mark.parametrize("within", ["{}", "array<{}>", "map<string, {}>", "struct<x {}>"])
def test_all_that_reads_values_reads_each_type(text: str, within: str) -> None:
    kind = parse_type("payloadSchema", within.format(text))
    json_text, value = VALUES[text]
    shape = {"{}": "{}", "array<{}>": "[{},null]", "map<string, {}>": '{{"x":{}}}', "struct<x {}>": '{{"x":{}}}'}
    whole, arrow = shape[within].format(json_text), to_arrow_type(kind)
    check_type("payloadSchema", kind)
    parsed = values_of([whole.encode(), None], arrow)
    strict = payload_array([json.loads(whole), None], arrow)
    assert strict.equals(parsed)
    [found, none] = strict.to_pylist()
    assert none is None
    if within == "array<{}>":
        found, after = found
        assert after is None
    elif within != "{}":
        found = dict(found)["x"]
    assert plain(found) == value


@pytest.mark.parametrize("kind", OTHERS, ids=str)
def test_all_that_reads_values_refuses_other_types(kind: DataType) -> None:
    schema = StructType().add("data", kind)
    for refuse in (
        lambda: schema_of_payload(kind),
        lambda: call_plan(StructType().add("n", LongType()), "q", return_schema=kind),
        lambda: columns_of(schema, "jobs"),
    ):
        with pytest.raises(OptionError, match="to be of types that JSON has values of"):
            refuse()
