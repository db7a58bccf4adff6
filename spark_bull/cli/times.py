"""Parses durations and intervals."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from math import inf
from typing import Final

from spark_bull.time_text import UNITS

_DURATION: Final = re.compile(rf"([0-9]+(?:\.[0-9]+)?)({'|'.join(UNITS)})?")

#: An interval of Spark, such as `1 minute 30 seconds`.
_INTERVAL: Final = re.compile(
    r"(interval\s+)?(\d+\s+(microsecond|millisecond|second|minute|hour|day|week)s?\s*)+", re.IGNORECASE
)


def milliseconds(text: str, default_unit: str = "ms") -> int:
    """Parses `1d`, `2h`, `5m`, `30s` or `500ms` for argparse; returns ms. default_unit: that of a bare number."""
    match = _DURATION.fullmatch(text.strip())
    duration = float(match[1]) * UNITS[match[2] or default_unit] if match else inf
    if duration == inf:
        raise ArgumentTypeError(f"expected a duration such as 500ms, 30s, 5m, 2h or 1d, got: {text!r}")
    return round(duration)


def seconds(text: str) -> float:
    """Parses a duration for argparse; returns s, which is also the unit of a bare number."""
    return milliseconds(text, "s") / 1_000


def trigger_interval(text: str) -> str:
    """Parses a duration, or an interval of Spark, for argparse; returns an interval of Spark."""
    return text if _INTERVAL.fullmatch(text.strip()) else f"{milliseconds(text)} milliseconds"
