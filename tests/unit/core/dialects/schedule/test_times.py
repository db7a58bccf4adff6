"""Cron patterns without Node, with which tests/interop compares, and intervals of job schedulers."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_bull.core.dialects import bull
from spark_bull.core.dialects.schedule import cron
from spark_bull.core.dialects.schedule.checks import interval_ms
from spark_bull.core.dialects.schedule.cron import next_time, time_before
from spark_bull.core.dialects.schedule.repeating import is_over, next_of_pattern, read_opts, time_of
from spark_bull.core.errors import OptionError, PatternError

NOON = int(datetime(2026, 5, 1, 12, tzinfo=timezone.utc).timestamp() * 1000)
HOUR = 3_600_000


@pytest.fixture
def own_zone(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Lets a test set the time zone of this machine."""
    monkeypatch.setattr(cron, "_own_zone", cron._own_zone.__wrapped__)
    return monkeypatch


def test_a_pattern_without_a_zone_uses_the_zone_of_this_machine(own_zone: pytest.MonkeyPatch) -> None:
    own_zone.setenv("TZ", "Europe/Berlin")
    assert next_time("0 18 * * *", NOON) == NOON + 4 * HOUR
    own_zone.delenv("TZ")
    assert next_time("* * * * *", NOON) == NOON + 60_000


def test_an_unknown_zone_is_an_error_that_names_it() -> None:
    for zone in ("Nowhere/Town", "../etc/passwd", "/etc/localtime"):
        with pytest.raises(PatternError, match=zone):
            next_time("* * * * *", NOON, zone)


@pytest.mark.parametrize(
    ("pattern", "low", "high", "unit"),
    [
        ("0 12 H/2 * *", 0, 40, 24 * HOUR),
        ("H 12 * * *", 0, 59, 60_000),
        ("H(10-20) 12 * * *", 10, 20, 60_000),
        ("H/15 12 * * *", 0, 14, 60_000),
    ],
)
def test_a_hashed_field_is_a_random_value_in_its_range(pattern: str, low: int, high: int, unit: int) -> None:
    after = NOON - 1
    times = {(next_time(pattern, after, "UTC") or 0) - NOON for _ in range(40)}
    assert len(times) > 1
    assert all(low * unit <= time <= high * unit for time in times)


def test_a_missing_croniter_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "croniter", None)
    with pytest.raises(PatternError, match="croniter"):
        next_time("* * * * *", NOON, "UTC")


# what stands beside a pattern


def test_a_date_may_be_a_number_or_a_text() -> None:
    times = {float(NOON): NOON, "2026-05-01T14:00:00+02:00": NOON, "2026-05-01": NOON - 12 * HOUR, "": None}
    assert {value: time_of({"endDate": value}, "endDate") for value in times} == times


def test_an_invalid_limit_or_date_is_an_error() -> None:
    wrong: list[dict[str, Any]] = [{"endDate": "next spring"}, {"limit": "three"}, {"limit": 1, "count": {}}]
    for repeat in (*wrong, {"endDate": "0001-01-01T00:00"}):
        with pytest.raises(PatternError):
            is_over(repeat, NOON)


def test_a_pattern_or_zone_that_is_not_a_text_or_options_that_are_no_object_are_an_error() -> None:
    wrong: list[tuple[Any, Any]] = [(5, "UTC"), ("* * * * *", True), (["*"], None)]
    for pattern, zone in wrong:
        with pytest.raises(PatternError, match="texts"):
            next_of_pattern({"tz": zone}, pattern, NOON, classic=True)
    for text in ("[]", "null", "7", "{", '{"delay": NaN}', '{"a":' * 2000):
        with pytest.raises(PatternError, match="opts"):
            read_opts(text)


_NUMBERS = st.integers(0, 10_000)


@given(st.tuples(_NUMBERS, _NUMBERS, _NUMBERS, _NUMBERS, st.integers(0, 10_000_000)))
def test_a_duration_is_read_as_ms(parts: tuple[int, int, int, int, int]) -> None:
    weeks, days, hours, minutes, ms = parts
    text = f"P{weeks}W{days}DT{hours}H{minutes}M{ms // 1000}.{ms % 1000:03}S"
    expected = timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, milliseconds=ms)
    assert interval_ms("every", text) == expected // timedelta(milliseconds=1)


def test_parts_of_a_duration_may_be_left_out_but_years_and_months_are_refused() -> None:
    durations = {"PT15M": 900_000, "P2W": 1_209_600_000, "pt1h30m": 5_400_000, "PT0,5S": 500}
    assert {text: interval_ms("every", text) for text in durations} == durations
    for value in (5, None, True, "", "1h", "P", "PT", "P1DT", "P1H", "PT1.0001S", "P-1D"):
        assert interval_ms("every", value) is value
    for text in ("P1M", "P1Y", "P1Y2M10DT2H30M", "p1m"):
        said = f"expected `every` without years and months, .*'{text}'; use `pattern`"
        with pytest.raises(OptionError, match=said):
            interval_ms("every", text)
    with pytest.raises(OptionError, match="expected `every` to be at most"):
        interval_ms("every", f"P{'9' * 30}D")


def test_intervals_of_bull_begin_in_1970() -> None:
    assert [bull._next_of({"every": 10}, now) for now in (25, 30)] == [30, 40]


def test_the_time_before_one_is_found() -> None:
    for pattern, before, found in [
        ("0 18 * * *", NOON, NOON - 18 * HOUR),
        ("* * * * *", NOON, NOON - 60_000),
        ("* * * * *", NOON + 1, NOON),
        ("*/10 0-5 0 * * *", NOON, NOON - 12 * HOUR + 350_000),
        ("0 0 31 2 *", NOON, None),
    ]:
        assert time_before(pattern, before, "UTC") == found, pattern
    leap = time_before("0 0 29 2 *", NOON, "UTC")
    assert leap is not None
    assert next_time("0 0 29 2 *", leap - 1, "UTC") == leap
