"""Types of payloads and results: inferred from JSON, read by all that reads values, or refused before anything runs."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types
from pyspark.sql.types import ArrayType, DataType, LongType, MapType, NullType, StringType, StructType, VariantVal

from spark_bull.core.errors import OptionError
from spark_bull.spark.call.call import call_plan
from spark_bull.spark.json.json_values import check_type, payload_array, values_of
from spark_bull.spark.json.types import _TYPES, ddl_of, inferred, parse_type, payload_check
from spark_bull.spark.platform.arrow import to_arrow_type
from spark_bull.spark.schemas import columns_of, schema_of
from spark_bull.spark.work.udf_runner import schema_of_payload

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
    *(
        types.YearMonthIntervalType(),
        types.DayTimeIntervalType(),
        types.CalendarIntervalType(),
        NullType(),
        types.CharType(3),
        types.VarcharType(3),
    ),
    *(MapType(LongType(), StringType()), ArrayType(NullType()), StructType().add("a", types.DayTimeIntervalType())),
)


def plain(value: Any) -> Any:
    is_variant = isinstance(value, dict) and value.keys() == {"value", "metadata"}
    return VariantVal(value["value"], value["metadata"]).toPython() if is_variant else value


def test_each_type_has_a_value_here() -> None:
    assert set(_TYPES) <= set(VALUES)


@pytest.mark.parametrize(
    ("text", "within"),
    [(text, "{}") for text in VALUES if text != "time" or text in _TYPES]
    + [(text, within) for text in ("int", "variant") for within in ("array<{}>", "map<string, {}>", "struct<x {}>")],
)
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


VARIANT = to_arrow_type(types.VariantType())


def test_the_type_of_values_is_inferred() -> None:
    types: list[tuple[list[Any], str]] = [
        ([{"to": "ada", "n": 1}, {"n": 2.5, "ok": True}], "STRUCT<`to`: STRING, `n`: DOUBLE, `ok`: BOOLEAN>"),
        ([{"a": {"b": [1, None]}}, {"a": None}], "STRUCT<`a`: STRUCT<`b`: ARRAY<BIGINT>>>"),
        ([{"a": 1}, {"a": "x"}], "STRUCT<`a`: STRING>"),
        ([{"a": []}, {"b`c": {}}], "STRUCT<`a`: ARRAY<STRING>, `b``c`: STRING>"),
        ([{"a": None}], "STRUCT<`a`: STRING>"),
        ([1, 2**63], "DOUBLE"),
        ([[1], {"a": 1}], "STRING"),
        ([True], "BOOLEAN"),
    ]
    for values, ddl in types:
        assert inferred(json.dumps(value) for value in values) == ddl
    # Texts that are not JSON.
    assert inferred([b"{", b"nope"]) is None
    assert inferred([b"{", b"1"]) == "BIGINT"


def test_columns_are_a_struct_and_a_type_is_itself() -> None:
    for text in ("struct<a: INT>", "double", "VARIANT", "DECIMAL(10, 2)", "Dec", "numeric (4, 2)", "TIMESTAMP_NTZ"):
        assert ddl_of("payloadSchema", text) == text
    for text in ("to STRING, n INT", "n INT", "decimal INT", "map MAP<STRING, INT>"):
        assert ddl_of("payloadSchema", text) == f"STRUCT<{text}>"
    assert ddl_of("payloadSchema", " MAP<STRING, INT> ") == "MAP<STRING, INT>"


def test_texts_with_a_length_are_refused_in_reads_and_writes() -> None:
    for text in ("VARCHAR(3)", "n CHAR (3)", "n ARRAY<STRUCT<c: character(2)>>"):
        read = {"queue": "q", "payloadSchema": text}
        for parse in (partial(schema_of, read, lambda *_: ""), partial(payload_check, text)):
            with pytest.raises(OptionError, match="expected `payloadSchema` to have STRING instead of"):
                parse()
    named = "`char(3)` INT COMMENT 'once a varchar(3)', char STRING"
    assert ddl_of("payloadSchema", named) == f"STRUCT<{named}>"


@pytest.mark.parametrize(
    ("kind", "value", "read"),
    [
        (pa.string(), {"ü": [1]}, '{"ü":[1]}'),
        (pa.string(), {"a\ud800": "\udfffb"}, '{"a\ufffd":"\ufffdb"}'),
        (pa.bool_(), 1, None),
        (pa.int32(), 2**31, None),
        (pa.int64(), 1.5, None),
        (pa.float64(), 1, 1.0),
        (pa.float64(), 10**308 * 10, None),
        (pa.decimal128(10, 2), 1.25, Decimal("1.25")),
        (pa.decimal128(10, 2), 10**12, None),
        (pa.date32(), "2024-05-06T07:08:09Z", dt.date(2024, 5, 6)),
        (pa.date32(), 7, None),
        (pa.timestamp("us", "UTC"), 1000, dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.timezone.utc)),
        (pa.binary(), "YQ==", b"a"),
        (pa.binary(), 5, None),
        (pa.list_(pa.int64()), [1, "x", None], [1, None, None]),
        (pa.list_(pa.int64()), {"a": 1}, None),
        (pa.map_(pa.string(), pa.int64()), {"a": 1, "b": "x"}, [("a", 1), ("b", None)]),
        (pa.struct([("a", pa.int64()), ("b", pa.string())]), {"a": "x", "b": 1, "c": 2}, {"a": None, "b": "1"}),
        (pa.struct([("a", pa.int64())]), [1], None),
    ],
)
def test_a_value_of_another_type_is_null(kind: pa.DataType, value: Any, read: Any) -> None:
    assert values_of([json.dumps(value).encode(), b"null", None, b"{", b"\xff"], kind).to_pylist() == [
        read,
        *[None] * 4,
    ]


@pytest.mark.parametrize("kind", [VARIANT, pa.string(), pa.list_(pa.string()), pa.list_(VARIANT)])
def test_json_that_is_nested_too_deeply_is_null_beside_other_jobs(kind: pa.DataType) -> None:
    """The deepest JSON that Python can parse depends on what calls it."""
    depths = [*range(900, 1100, 3), 200_000]
    deep = [b"[" * levels + text + b"]" * levels for levels in depths for text in (b"1", b'"\\ud800"')]
    *nested, shallow = values_of([*deep, b"[[[1]]]"], kind).to_pylist()
    assert nested[-1] is None
    assert shallow is not None


def test_json_that_is_larger_than_a_variant_is_null_beside_other_jobs() -> None:
    large = json.dumps("x" * 2**24).encode()
    read = values_of([large, b"1"], VARIANT).to_pylist()
    assert [one is None for one in read] == [True, False]
