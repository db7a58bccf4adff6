"""`payloadSchema` of a write: types in SQL without a JVM, and where a payload does not match."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark_bull.errors import OptionError
from spark_bull.spark.json.ddl import parse_type
from spark_bull.spark.json.payload_check import payload_check

SCHEMA = """
    to STRING NOT NULL COMMENT 'an address', `a``b` DECIMAL(10, 2),
    items ARRAY<STRUCT<price: DOUBLE, n: TINYINT NOT NULL>>, tags MAP<STRING, BOOLEAN>, at TIMESTAMP, any VARIANT
"""
GOOD = {
    "to": "ada@example.org",
    "a`b": 1.25,
    "items": [{"price": 2, "n": -128}, None],
    "tags": {"new": True},
    "at": "2024-02-29T12:30:15Z",
    "any": [{}],
    "unknown": 1,
}


def test_columns_are_parsed_as_by_spark() -> None:
    assert parse_type("payloadSchema", SCHEMA).simpleString() == (
        "struct<to:string,a`b:decimal(10,2),items:array<struct<price:double,n:tinyint>>,tags:map<string,boolean>,"
        "at:timestamp,any:variant>"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("n WHAT", "expected a type, got 'what'"),
        ("n", "expected a type, got '>'"),
        ("n INT m INT", "expected ',', got 'm'"),
        ("ARRAY<INT", "expected '>', got ''"),
        ("ARRAY<INT>>", "expected the end, got '>'"),
        ("DECIMAL(a)", "expected a number, got 'a'"),
        ("infer", "which is for reads"),
    ],
)
def test_a_text_that_is_no_type_is_an_error_with_the_place(text: str, said: str) -> None:
    with pytest.raises(OptionError, match="`payloadSchema`") as error:
        payload_check(text)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("text", "kind", "good", "bad"),
    [
        ("DECIMAL", "decimal(10,0)", "7", "many"),
        ("NUMERIC(3)", "decimal(3,0)", 999, 1000),
        ("dec (4, 2)", "decimal(4,2)", 12.25, []),
        ("TIMESTAMP_NTZ", "timestamp_ntz", "2024-02-29T12:30:15", "soon"),
        ("TIMESTAMP_LTZ", "timestamp", "2024-02-29T12:30:15Z", "soon"),
        ("MAP <STRING, TIMESTAMP_NTZ>", "map<string,timestamp_ntz>", {"at": 0}, {"at": True}),
    ],
)
def test_a_whole_payload_has_a_type(text: str, kind: str, good: Any, bad: Any) -> None:
    assert parse_type("payloadSchema", text).simpleString() == kind
    check = payload_check(text)
    assert check is not None
    check.check([json.dumps(good)], [0])
    with pytest.raises(OptionError, match=r"row 1: expected `\$"):
        check.check([json.dumps(bad)], [1])


@pytest.mark.parametrize("payload", [GOOD, {"to": "x"}, {"to": "x", "items": None, "at": 1_700_000_000_000}])
def test_payloads_that_match_pass(payload: dict[str, Any]) -> None:
    check = payload_check(SCHEMA)
    assert check is not None
    check.check([json.dumps(payload), None], [0, 1])


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ([], "row 8: expected `$` to be STRUCT, got an array: []"),
        ({}, "row 8: expected `$.to` to be STRING NOT NULL, got none"),
        ({"to": None}, "row 8: expected `$.to` to be STRING NOT NULL, got null: null"),
        ({"to": 5}, "row 8: expected `$.to` to be STRING NOT NULL, got a number: 5"),
        (GOOD | {"items": [GOOD["items"][0], {"price": "2", "n": 1}]}, "`$.items[1].price` to be DOUBLE, got a string"),  # type: ignore[index]
        (GOOD | {"items": [{"n": 128}]}, "`$.items[0].n` to be TINYINT NOT NULL, got a number: 128"),
        (GOOD | {"items": [{"n": True}]}, "`$.items[0].n` to be TINYINT NOT NULL, got a boolean: true"),
        (GOOD | {"items": {"n": 1}}, "`$.items` to be ARRAY, got an object"),
        (GOOD | {"tags": {"new": 1}}, "`$.tags.new` to be BOOLEAN, got a number: 1"),
        (GOOD | {"a`b": "much"}, "`$.a`b` to be DECIMAL(10,2), got a string"),
        (GOOD | {"at": "soon"}, "`$.at` to be TIMESTAMP, got a string"),
    ],
)
def test_an_error_names_row_path_expected_and_actual_type(payload: Any, said: str) -> None:
    check = payload_check(SCHEMA)
    assert check is not None
    with pytest.raises(OptionError) as error:
        check.check([json.dumps(GOOD), json.dumps(payload)], [7, 8])
    assert said in str(error.value)


@pytest.mark.parametrize("text", ["[" * 200_000 + "]" * 200_000, '{"n":' * 200_000 + "1" + "}" * 200_000, "1" * 5_000])
def test_json_that_python_cannot_parse_is_an_error_that_names_the_row(text: str) -> None:
    """Columns are checked with the parser of Arrow first, which has other limits."""
    check = payload_check("VARIANT")
    assert check is not None
    with pytest.raises(OptionError, match=r"^row 8: expected `data` to be JSON that can be checked, got: .*…' \("):
        check.check(["1", text], [7, 8])
