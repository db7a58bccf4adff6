"""Payloads that Arrow parses are those that Python parses, or left to Python; `payloadSchema` checks them."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.json
import pytest

from spark_bull.core.errors import OptionError, SparkBullError
from spark_bull.core.model.job_json import payload_of
from spark_bull.spark.json import json_text
from spark_bull.spark.json.json_values import array_of_column, array_of_texts, payload_array
from spark_bull.spark.json.types import parse_type, payload_check

KIND = pa.struct([("s", pa.string()), ("d", pa.float64()), ("i", pa.int64()), ("j", pa.int32()), ("b", pa.bool_())])
VALUES = (
    *("null", "true", "0", "1", "-5", "5.0", "1.5", "-1e3", "1E400", "1e-400", "4.9e-324", "1.7976931348623157e308"),
    *("9007199254740991", "9007199254740993", "9223372036854775807", "9223372036854775808", "2147483648"),
    *("NaN", "Infinity", "-Infinity", "nan", "Inf", "01", "1.", ".5", "+1", "-", "1e", "0x1", "tru"),
    *('"x"', '""', '"NaN"', '"{"', '"}"', r'"\u0000"', r'"\ud800"', r'"\ud83d\ude00"', r'"\x"', '"é"', '"\t"', "'x'"),
    *("[1]", "[]", "{}", '{"s": "inner"}'),
)
NAMES = ("s", "d", "i", "j", "b", "other", "S", "")
#: Texts that are no object, or more than one; a parser of lines could take some of them together for others.
WRONG = (
    *("", " ", "null", "1", '"x"', "[]", '{"s":"}', '{"s":{}', '{"a":[{}', '{"s":"x",}', "{}{}", "{}\n{}", "{} {}"),
    *(
        '{"s":"a"} {"s":"b"}',
        '{"d":1}\n{"d":2}',
        "{/*c*/}",
        '{"s":"a"}x{"s":"b"}',
        "{'s':1}",
        ' {"s":"x"}',
        '{"s":"x"} ',
    ),
)


def by_python(texts: list[str]) -> pa.Array:
    return payload_array([payload_of("1", text) for text in texts], KIND)


def random_text(random: Random) -> str:
    if random.random() < 0.1:
        return random.choice(WRONG)
    fields = (f"{json.dumps(random.choice(NAMES))}: {random.choice(VALUES)}" for _ in range(random.randrange(4)))
    return "{" + random.choice((",", " ,\n")).join(fields) + "}"


def test_arrow_reads_random_payloads_as_python_does_or_leaves_them_to_it() -> None:
    random, read = Random(7), 0
    for _ in range(2_000):
        texts = [random_text(random) for _ in range(random.choice((1, 1, 2, 3)))]
        found = array_of_texts(texts, KIND)
        of_column = array_of_column(pa.array(texts), KIND)
        assert str(of_column) == str(found)
        if found is not None:
            read += 1
            assert found.type == KIND
            assert repr(found.to_pylist()) == repr(by_python(texts).to_pylist()), texts
    assert read > 200


def test_fields_that_must_not_be_null_stay_so() -> None:
    kind = pa.struct([pa.field("i", pa.int64(), nullable=False), pa.field("s", pa.string())])
    found = array_of_texts(['{"i":1}', '{"i":2,"s":"x"}'], kind)
    assert found.type == kind
    assert found.to_pylist() == [{"i": 1, "s": None}, {"i": 2, "s": "x"}]


def test_the_reader_that_older_versions_of_arrow_have_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ['{"s":"x","d":1.5,"i":-3}', '{"j":4,"other":{}}']
    found = array_of_texts(texts, KIND)
    for module in (json_text.pj, pyarrow.json):
        monkeypatch.delattr(module, "open_json", raising=False)
    older = array_of_texts(texts, KIND)
    assert found is not None
    assert older.equals(found)
    assert array_of_texts(["{]}"], KIND) is None


def test_what_is_not_one_object_is_left_to_python() -> None:
    for text in WRONG:
        assert array_of_texts(['{"s":"x"}', text, '{"s":"y"}'], KIND) is None, text
        assert array_of_texts([text], KIND) is None, text


def test_types_that_need_a_conversion_are_left_to_python() -> None:
    for kind in (pa.timestamp("us", "UTC"), pa.decimal128(10, 2), pa.list_(pa.int64()), pa.binary(), pa.date32()):
        assert array_of_texts(["{}"], pa.struct([("a", kind)])) is None
    assert array_of_texts(["{}"], pa.string()) is None
    assert array_of_texts(["{}"], pa.struct([])) is None
    assert array_of_texts([], KIND) is None
    assert array_of_column(pa.array([], pa.string()), KIND) is None
    assert array_of_column(pa.array(["{}", None]), KIND) is None
    assert array_of_column(pa.array(["{}"]), pa.string()) is None
    with pytest.raises(SparkBullError, match="expected the payload to match the schema"):
        by_python(['{"s":1}'])


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
        ("ARRAY<INT", "expected '>', got ''"),
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
        ("dec (4, 2)", "decimal(4,2)", 12.25, []),
        ("TIMESTAMP_NTZ", "timestamp_ntz", "2024-02-29T12:30:15", "soon"),
        ("MAP <STRING, TIMESTAMP_NTZ>", "map<string,timestamp_ntz>", {"at": 0}, {"at": True}),
    ],
)
def test_a_whole_payload_has_a_type(text: str, kind: str, good: Any, bad: Any) -> None:
    assert parse_type("payloadSchema", text).simpleString() == kind
    check = payload_check(text)
    check.check([json.dumps(good)], [0])
    with pytest.raises(OptionError, match=r"row 1: expected `\$"):
        check.check([json.dumps(bad)], [1])


@pytest.mark.parametrize("payload", [GOOD, {"to": "x"}, {"to": "x", "items": None, "at": 1_700_000_000_000}])
def test_payloads_that_match_pass(payload: dict[str, Any]) -> None:
    check = payload_check(SCHEMA)
    check.check([json.dumps(payload), None], [0, 1])


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ([], "row 8: expected `$` to be STRUCT, got an array: []"),
        ({}, "row 8: expected `$.to` to be STRING NOT NULL, got none"),
        ({"to": 5}, "row 8: expected `$.to` to be STRING NOT NULL, got a number: 5"),
        (GOOD | {"items": [GOOD["items"][0], {"price": "2", "n": 1}]}, "`$.items[1].price` to be DOUBLE, got a string"),
        (GOOD | {"items": [{"n": 128}]}, "`$.items[0].n` to be TINYINT NOT NULL, got a number: 128"),
        (GOOD | {"items": {"n": 1}}, "`$.items` to be ARRAY, got an object"),
        (GOOD | {"tags": {"new": 1}}, "`$.tags.new` to be BOOLEAN, got a number: 1"),
        (GOOD | {"at": "soon"}, "`$.at` to be TIMESTAMP, got a string"),
    ],
)
def test_an_error_names_row_path_expected_and_actual_type(payload: Any, said: str) -> None:
    check = payload_check(SCHEMA)
    with pytest.raises(OptionError) as error:
        check.check([json.dumps(GOOD), json.dumps(payload)], [7, 8])
    assert said in str(error.value)


@pytest.mark.parametrize("text", ["[" * 200_000 + "]" * 200_000, '{"n":' * 200_000 + "1" + "}" * 200_000, "1" * 5_000])
def test_json_that_python_cannot_parse_is_an_error_that_names_the_row(text: str) -> None:
    """Columns are checked with the parser of Arrow first, which has other limits."""
    check = payload_check("VARIANT")
    with pytest.raises(OptionError, match=r"^row 8: expected `data` to be JSON that can be checked, got: .*…' \("):
        check.check(["1", text], [7, 8])
