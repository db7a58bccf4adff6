"""Intervals of job schedulers."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_bull.dialects.schedule.interval import interval_ms
from spark_bull.errors import OptionError

_NUMBERS = st.integers(0, 10_000)


@given(st.tuples(_NUMBERS, _NUMBERS, _NUMBERS, _NUMBERS, st.integers(0, 10_000_000)))
def test_a_duration_is_read_as_ms(parts: tuple[int, int, int, int, int]) -> None:
    weeks, days, hours, minutes, ms = parts
    text = f"P{weeks}W{days}DT{hours}H{minutes}M{ms // 1000}.{ms % 1000:03}S"
    expected = timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, milliseconds=ms)
    assert interval_ms("every", text) == expected // timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("text", "ms"),
    [("PT15M", 900_000), ("P1D", 86_400_000), ("P2W", 1_209_600_000), ("pt1h30m", 5_400_000), ("PT0,5S", 500)],
)
def test_parts_of_a_duration_may_be_left_out(text: str, ms: int) -> None:
    assert interval_ms("every", text) == ms


@pytest.mark.parametrize(
    "value", [5, 0, None, True, "", "5", "1h", "P", "PT", "P1DT", "P1H", "PT1D", "PT1.0001S", "P-1D"]
)
def test_what_is_no_duration_is_returned(value: object) -> None:
    assert interval_ms("every", value) is value


@pytest.mark.parametrize("text", ["P1M", "P1Y", "P1Y2M10DT2H30M", "P3MT1H", "p1m"])
def test_years_and_months_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match=f"expected `every` without years and months, .*'{text}'; use `pattern`"):
        interval_ms("every", text)


def test_a_duration_beyond_all_numbers_is_refused() -> None:
    with pytest.raises(OptionError, match="expected `every` to be at most"):
        interval_ms("every", f"P{'9' * 30}D")
