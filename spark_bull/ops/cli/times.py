"""Parses durations and intervals."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from typing import Final

from spark_bull.core.time_text import milliseconds_of

#: An interval of Spark, such as `1 minute 30 seconds`.
_INTERVAL: Final = re.compile(
    r"(interval\s+)?(\d+\s+(microsecond|millisecond|second|minute|hour|day|week)s?\s*)+", re.IGNORECASE
)


def milliseconds(text: str, default_unit: str = "ms") -> int:
    """Parses `1d`, `2h`, `5m`, `30s` or `500ms` for argparse; returns ms. default_unit: that of a bare number."""
    ms = milliseconds_of(text, default_unit)
    if ms is None:
        raise ArgumentTypeError(f"expected a duration such as 500ms, 30s, 5m, 2h or 1d, got: {text!r}")
    return ms


def seconds(text: str) -> float:
    """Parses a duration for argparse; returns s, which is also the unit of a bare number."""
    return milliseconds(text, "s") / 1_000


def positive_seconds(text: str) -> float:
    """The same as `seconds`, for a duration that is not 0."""
    if not (found := seconds(text)):
        raise ArgumentTypeError(f"expected a duration of 1ms or more, got: {text!r}")
    return found


def trigger_interval(text: str) -> str:
    """Parses a duration, or an interval of Spark, for argparse; returns an interval of Spark."""
    return text if _INTERVAL.fullmatch(text.strip()) else f"{milliseconds(text)} milliseconds"
