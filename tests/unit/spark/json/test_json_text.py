"""Arrow columns become the JSON text that Python and JavaScript read, and only valid JSON text is accepted."""

from __future__ import annotations

import base64
import json
import math
import random
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import available_timezones

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructField, StructType, VariantType, VariantVal

from spark_bull.core.errors import OptionError
from spark_bull.spark.json.json_text import MAX_SHOWN, check_json, is_encodable, to_json
from spark_bull.spark.json.json_values import values_of
from spark_bull.spark.platform.arrow import to_arrow_schema
from spark_bull.spark.staging.columns import column_values

VARIANT = to_arrow_schema(StructType([StructField("v", VariantType())])).field("v")


WITH_ODD_CHARACTERS = st.text(
    st.one_of(st.characters(codec="utf-8"), st.sampled_from('"\\/\x00\x01\n\t\x1f\x7f\u2028'))
)
TIMES = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999))
#: The values of each type that can name a member of a map.
NAMES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): WITH_ODD_CHARACTERS,
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(),
    pa.large_string(): WITH_ODD_CHARACTERS,
}
SCALARS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    **NAMES,
    pa.float64(): st.floats(),
    pa.float32(): st.floats(width=32),
    pa.decimal128(20, 6): st.decimals(-(10**13), 10**13, places=6),
    pa.decimal128(38, 0): st.decimals(-(10**37), 10**37, places=0),
    pa.binary(): st.binary(),
    pa.timestamp("us", "UTC"): TIMES.map(lambda value: value.replace(tzinfo=timezone.utc)),
    pa.timestamp("us"): TIMES,
    pa.large_binary(): st.binary(),
}
TYPES: st.SearchStrategy[pa.DataType] = st.recursive(
    st.sampled_from(list(SCALARS)),
    lambda inner: st.one_of(
        inner.map(pa.list_),
        st.builds(pa.map_, st.sampled_from(list(NAMES)), inner),
        st.lists(st.tuples(WITH_ODD_CHARACTERS, inner), max_size=3, unique_by=lambda field: field[0]).map(pa.struct),
    ),
    max_leaves=5,
)


def members(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of a type, and None."""
    if pa.types.is_list(kind):
        return st.none() | st.lists(members(kind.value_type), max_size=4)
    if pa.types.is_map(kind):
        pairs = st.tuples(NAMES[kind.key_type], members(kind.item_type))
        return st.none() | st.lists(pairs, max_size=4, unique_by=lambda pair: name_of(pair[0]))
    if pa.types.is_struct(kind):
        return st.none() | st.fixed_dictionaries({field.name: members(field.type) for field in kind})
    return st.none() | SCALARS[kind]


def name_of(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def expected(kind: pa.DataType, value: Any, ignore_nulls: bool) -> Any:
    """The JSON of a value, as Python would read it."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if pa.types.is_list(kind):
        return [expected(kind.value_type, member, ignore_nulls) for member in value]
    if pa.types.is_map(kind):
        return {name_of(name): expected(kind.item_type, member, ignore_nulls) for name, member in value}
    if pa.types.is_struct(kind):
        fields = [field for field in kind if not ignore_nulls or value[field.name] is not None]
        return {field.name: expected(field.type, value[field.name], ignore_nulls) for field in fields}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        # Whole milliseconds, rounded down as Spark does, also before 1970.
        return value.replace(tzinfo=None).isoformat(timespec="milliseconds") + ("Z" if value.tzinfo else "")
    return value.isoformat() if isinstance(value, date) else value


@st.composite
def columns(draw: st.DrawFn) -> tuple[pa.DataType, list[Any]]:
    kind = draw(TYPES)
    return kind, draw(st.lists(members(kind), max_size=6))


def parsed(text: str | None) -> Any:
    return None if text is None else json.loads(text, parse_float=Decimal, parse_constant=pytest.fail)


def alike(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return (
            isinstance(found, dict) and list(found) == list(wanted) and all(alike(found[n], wanted[n]) for n in found)
        )
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(alike, found, wanted))
    if isinstance(wanted, float):
        # Arrow writes a 32-bit float with its shortest digits, not with the digits of its 64-bit value.
        return not isinstance(found, bool) and math.isclose(float(found), wanted, rel_tol=1e-6, abs_tol=1e-44)
    return type(found) in (type(wanted), Decimal if isinstance(wanted, int) else type(wanted), int) and found == wanted


OF_LISTS, OF_TEXTS = pa.struct([("a", pa.list_(pa.null()))]), pa.struct([("a", pa.string())])
OF_NAMES = pa.map_(pa.int64(), pa.string())


@settings(max_examples=200)
@given(column=columns(), ignore_nulls=st.booleans(), before=st.integers(0, 2), after=st.integers(0, 2))
@example(column=(pa.struct([]), [None, {}]), ignore_nulls=True, before=0, after=0)
@example(column=(OF_NAMES, [[(1, "a"), (-2, None)], [], None]), ignore_nulls=True, before=1, after=1)
@example(column=(pa.null(), [None, None]), ignore_nulls=True, before=1, after=0)
@example(column=(pa.list_(pa.null()), [[], None, [None, None], []]), ignore_nulls=True, before=1, after=1)
@example(column=(OF_LISTS, [{"a": []}, None, {"a": None}]), ignore_nulls=False, before=1, after=1)
@example(column=(OF_TEXTS, [{"a": None}, {"a": "x"}, {"a": None}]), ignore_nulls=True, before=0, after=0)
@example(column=(pa.float64(), [1e300, 1e-7, 5e-324, -0.0]), ignore_nulls=True, before=0, after=0)
def test_a_column_becomes_the_json_that_python_would_write(
    column: tuple[pa.DataType, list[Any]], ignore_nulls: bool, before: int, after: int
) -> None:
    kind, values = column
    padding = values[:1] or [None]
    array = pa.array([*padding * before, *values, *padding * after], kind).slice(before, len(values))
    field = pa.field("data", kind)
    assert is_encodable(field)

    texts = to_json(array, field, ignore_nulls=ignore_nulls).to_pylist()

    wanted = [expected(kind, value, ignore_nulls) for value in values]
    found = [parsed(text) for text in texts]
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert alike(one, other), f"{one!r} for {other!r}"


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**28) + 1, 10**28 - 1)  # PySpark rounds numbers with more digits.
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.lists(JSON_VALUES, min_size=1, max_size=3), st.booleans())
def test_variants_become_their_json(values: list[Any], nested: bool) -> None:
    variants = [VariantVal.parseJson(json.dumps(value)) for value in values]
    members = [None, *({"value": bytes(v.value), "metadata": bytes(v.metadata)} for v in variants)]
    array, field, wanted = pa.array(members, VARIANT.type), VARIANT, [None, *values]
    if nested:
        field = pa.field("list", pa.list_(VARIANT.with_name("element")))
        array, wanted = pa.array([members, None], field.type), [wanted, None]
    assert is_encodable(field)
    texts = to_json(array, field, ignore_nulls=True).to_pylist()
    assert [None if text is None else json.loads(text) for text in texts] == wanted


def test_a_variant_that_is_nested_too_deeply_is_an_error() -> None:
    found = VariantVal.parseJson("[" * 500 + "]" * 500)
    array = pa.array([{"value": found.value, "metadata": found.metadata}], VARIANT.type)
    with pytest.raises(OptionError, match="expected each VARIANT to have at most some 200 levels"):
        to_json(array, VARIANT, ignore_nulls=True)


def test_numbers_that_json_lacks_are_null_in_a_variant() -> None:
    for number in (float("nan"), float("inf"), float("-inf")):
        found = VariantVal.parseJson(json.dumps({"inf": ["nan", number, 'say "-inf"', 1.5]}))
        array = pa.array([{"value": found.value, "metadata": found.metadata}], VARIANT.type)
        text = to_json(array, VARIANT, ignore_nulls=True)[0].as_py()
        assert json.loads(text) == {"inf": ["nan", None, 'say "-inf"', 1.5]}


def test_types_that_json_cannot_represent_are_detected_before_encoding() -> None:
    duration, none = pa.duration("us"), pa.null()
    for kind in (
        *(duration, pa.month_day_nano_interval(), pa.list_(duration), pa.struct([("a", duration)])),
        *(pa.map_(pa.string(), duration), pa.map_(pa.struct([("a", pa.int32())]), pa.string())),
        *(pa.map_(pa.list_(pa.int32()), pa.string()), pa.map_(pa.string(), none), pa.list_(pa.list_(none))),
        *(pa.map_(pa.string(), pa.list_(none)), pa.list_(pa.struct([("a", none)]))),
    ):
        assert not is_encodable(pa.field("data", kind)), kind


# text that should be JSON

GOOD = st.builds(json.dumps, JSON_VALUES, ensure_ascii=st.booleans(), indent=st.sampled_from([None, 1]))
FRAGMENTS = st.lists(
    st.sampled_from(
        [
            *["01", "null", "NaN", "Infinity", "-Infinity", "Inf", "1.", "//", "\\u12", "\\ud800"],
            '"a"',
            '"a":',
            *"{}[],:-1é \n\t\\\"'\0\1",
        ]
    ),
    max_size=8,
).map("".join)


def is_json(text: str | None) -> bool:
    if text is None:
        return True
    try:
        json.loads(text, parse_constant=int)  # It refuses NaN and Infinity.
    except (ValueError, RecursionError):
        return False
    return True


@settings(max_examples=300)
@given(
    st.lists(GOOD | FRAGMENTS | FRAGMENTS.map(lambda text: "{" + text + "}") | st.none(), min_size=1, max_size=4),
    st.integers(0, 1),
)
@example(["{}{}\x00}", "{}"], 0)
@example(['{"a":1}{"b":2}', '{"c":3}'], 0)
@example(['{"a":NaN}'], 0)
@example(['{"a":01}'], 0)
@example(['{"a":{}', '"b":1}'], 0)
@example([""], 0)
@example(["[" * 100_000], 0)
def test_the_first_text_that_is_not_json_is_named(texts: list[str | None], before: int) -> None:
    array = pa.array(["nonsense"] * before + texts, pa.string()).slice(before)
    bad = next((n for n, text in enumerate(texts) if not is_json(text)), None)
    if bad is None:
        check_json(array, "data", range(100, 100 + len(array)))
        return
    with pytest.raises(OptionError, match=f"row {100 + bad}: expected `data` to be JSON, got: "):
        check_json(array, "data", range(100, 100 + len(array)))


def test_an_error_shows_the_text_that_is_not_json() -> None:
    for text in ("{'a': 1}", '{"a": 1', "NaN", '{"a": Infinity}', "", '{"a": 1} x', "x" * 10_000):
        with pytest.raises(OptionError) as error:
            check_json(pa.array([None, "{}", text]), "data", range(7, 10))
        shown = text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
        assert f"row 9: expected `data` to be JSON, got: {shown!r}" in str(error.value)
        assert "to_json()" in str(error.value)


EPOCH = datetime(1970, 1, 1)
SECOND, DAY = 1_000_000, 86_400_000_000


def us_of(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def random_moments() -> list[datetime]:
    """Of 1900 to 2100; half of them of the weeks in which zones repeat an hour."""
    source = random.Random()
    first, last = (us_of(datetime(year, 1, 1)) for year in (1900, 2100))
    autumn = [datetime(source.randrange(1970, 2038), 10, 20) + timedelta(minutes=20 * n) for n in range(3 * 7 * 72)]
    anywhere = [EPOCH + timedelta(microseconds=source.randrange(first, last)) for _ in autumn]
    return source.sample(autumn, 100) + source.sample(anywhere, 100)


def test_times_of_1900_to_2100_are_written_and_read_in_every_time_zone() -> None:
    moments = random_moments()
    us = pa.array([us_of(moment) for moment in moments], pa.int64())
    texts = pa.array([f'"{moment.isoformat(timespec="milliseconds")}Z"' for moment in moments])
    ms = [us_of(moment) // 1000 for moment in moments]
    # The names that Spark writes for offsets, and one that no library knows.
    for zone in (*available_timezones(), "+05:30", "-18:00", "GMT+8", "Mars/Olympus"):
        kind = pa.timestamp("us", zone)
        column = us.view(kind)
        assert to_json(column, pa.field("t", kind), ignore_nulls=True).equals(texts), zone
        assert column_values(pa.record_batch([column], ["t"]), 0, "t", range(len(ms))) == ms, zone
    read = values_of([text.encode() for text in texts.to_pylist()], pa.timestamp("us", "Europe/Berlin"))
    assert [value // 1000 for value in read.view(pa.int64()).to_pylist()] == ms


def variants(type_number: int, us: int, size: int = 8) -> pa.Array:
    """A VARIANT of one primitive value. type_number: 11 is DATE, 12 TIMESTAMP, 13 TIMESTAMP_NTZ."""
    value = bytes([type_number << 2]) + us.to_bytes(size, "little", signed=True)
    return pa.array([{"value": value, "metadata": b"\x01\x00\x00"}], VARIANT.type)


OF_US: list[tuple[Callable[[int], pa.Array], str]] = [
    (lambda us: pa.array([us], pa.int64()).view(pa.timestamp("us", "America/New_York")), "Z"),
    (lambda us: pa.array([us], pa.int64()).view(pa.timestamp("us")), ""),
    (lambda us: variants(12, us), "Z"),
    (lambda us: variants(13, us), ""),
]
DATES: list[Callable[[int], pa.Array]] = [
    lambda days: pa.array([days], pa.int32()).view(pa.date32()),
    lambda days: variants(11, days, 4),
]


def text_of(array: pa.Array) -> Any:
    field = VARIANT if pa.types.is_struct(array.type) else pa.field("v", array.type)
    return to_json(array, field, ignore_nulls=True)[0].as_py()


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (us_of(datetime(2024, 2, 29, 12, 30, 15, 123456)), "2024-02-29T12:30:15.123"),
        (us_of(datetime(1969, 12, 31, 23, 59, 59, 999999)), "1969-12-31T23:59:59.999"),
        (us_of(datetime(2024, 11, 3, 6, 30)), "2024-11-03T06:30:00.000"),  # Half past one, again, in New York.
        (us_of(datetime(1, 1, 1)), "0001-01-01T00:00:00.000"),
        # The last second of 9999 in New York, and others whose text JavaScript takes for another time, or for none.
        (us_of(datetime(9999, 12, 31, 23, 59, 59)) + 5 * 3600 * SECOND, "+010000-01-01T04:59:59.000"),
        (us_of(datetime(1, 1, 1)) - 366 * DAY - 1, "-000001-12-31T23:59:59.999"),
        (8_640_000_000_000_000_000, "+275760-09-13T00:00:00.000"),
        (-8_640_000_000_000_000_000, "-271821-04-20T00:00:00.000"),
    ],
)
def test_a_time_is_written_in_whole_milliseconds_and_in_utc(us: int, text: str) -> None:
    assert [text_of(times(us)) for times, _ in OF_US] == [f'"{text}{suffix}"' for _, suffix in OF_US]


@pytest.mark.parametrize(
    ("days", "text"),
    [
        ((date(2024, 2, 29) - date(1970, 1, 1)).days, "2024-02-29"),
        ((date(1, 1, 1) - date(1970, 1, 1)).days - 366, "0000-01-01"),
        ((date(1, 1, 1) - date(1970, 1, 1)).days - 367, "-000001-12-31"),
        (2_932_897, "+010000-01-01"),
        (100_000_000, "+275760-09-13"),
    ],
)
def test_a_date_is_written_as_javascript_reads_it(days: int, text: str) -> None:
    assert [text_of(dates(days)) for dates in DATES] == [f'"{text}"'] * 2


def test_a_time_beyond_those_of_javascript_is_an_error_that_names_the_column() -> None:
    beyond = [times(us) for times, _ in OF_US for us in (8_640_000_000_000_001_000, 2**63 - 1, -(2**63))]
    for array in [*beyond, *(dates(days) for dates in DATES for days in (100_000_001, -(2**31)))]:
        with pytest.raises(OptionError, match=r"each time in `v` to be one that JavaScript can read \(years -2718"):
            text_of(array)
