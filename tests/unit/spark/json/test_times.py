"""Times are in UTC, whatever the time zone of the session, in texts that JavaScript writes and reads."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import available_timezones

import pyarrow as pa
import pytest
from pyspark.sql.types import StructField, StructType, VariantType

from spark_bull.errors import OptionError
from spark_bull.spark.json.json_text import to_json
from spark_bull.spark.json.json_values import values_of
from spark_bull.spark.platform.arrow import to_arrow_schema
from spark_bull.spark.staging.columns import column_values

EPOCH = datetime(1970, 1, 1)
SECOND, DAY = 1_000_000, 86_400_000_000
VARIANT = to_arrow_schema(StructType([StructField("v", VariantType())])).field("v")


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


def timestamps(us: int) -> pa.Array:
    return pa.array([us], pa.int64()).view(pa.timestamp("us", "America/New_York"))


def naive(us: int) -> pa.Array:
    return pa.array([us], pa.int64()).view(pa.timestamp("us"))


def variants(type_number: int, us: int, size: int = 8) -> pa.Array:
    """A VARIANT of one primitive value. type_number: 11 is DATE, 12 TIMESTAMP, 13 TIMESTAMP_NTZ."""
    value = bytes([type_number << 2]) + us.to_bytes(size, "little", signed=True)
    return pa.array([{"value": value, "metadata": b"\x01\x00\x00"}], VARIANT.type)


TIMES: list[tuple[Callable[[int], pa.Array], str]] = [
    (timestamps, "Z"),
    (naive, ""),
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
    assert [text_of(times(us)) for times, _ in TIMES] == [f'"{text}{suffix}"' for _, suffix in TIMES]


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
    beyond = [times(us) for times, _ in TIMES for us in (8_640_000_000_000_001_000, 2**63 - 1, -(2**63))]
    for array in [*beyond, *(dates(days) for dates in DATES for days in (100_000_001, -(2**31)))]:
        with pytest.raises(
            OptionError, match="each time in `v` to be one that JavaScript can read, of the years -2718"
        ):
            text_of(array)
