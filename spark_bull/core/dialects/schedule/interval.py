"""Intervals of job schedulers: ms, or a duration of ISO 8601."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from spark_bull.core.errors import OptionError

_DURATION: Final = re.compile(
    r"P(?=\d|T\d)(?:(?P<weeks>\d{1,100})W)?(?:(?P<days>\d{1,100})D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d{1,100})H)?(?:(?P<minutes>\d{1,100})M)?(?:(?P<seconds>\d{1,100}(?:[.,]\d{1,3})?)S)?)?",
    re.ASCII | re.IGNORECASE,
)
#: A duration with years or months before the `T`.
_CALENDAR: Final = re.compile(r"P[^T]*[YM].*", re.IGNORECASE)
_UNITS: Final = {"weeks": 604_800_000, "days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}
#: The largest integer of JavaScript; Redis' scores can't hold a larger one either.
_LONGEST_MS: Final = 2**53 - 1


def interval_ms(name: str, value: object) -> object:
    """The ms of a duration such as PT15M, P1D or PT1M30.5S; what is no such text is returned as it is.

    A day has 24 hours. Raises OptionError for a duration of years or months, and for one out of range.
    """
    if not isinstance(value, str) or value[:1] not in ("P", "p"):
        return value
    if _CALENDAR.fullmatch(value):
        raise OptionError(
            f"expected `{name}` without years and months, which have no fixed length, got: {value!r}; use `pattern`, "
            "for example '0 0 1 * *' for the first day of each month"
        )
    match = _DURATION.fullmatch(value)
    if match is None:
        return value
    found = {unit: text for unit, text in match.groupdict().items() if text}
    ms = sum(int(Fraction(text.replace(",", ".")) * _UNITS[unit]) for unit, text in found.items())
    if ms > _LONGEST_MS:
        raise OptionError(f"expected `{name}` to be at most {_LONGEST_MS} ms, got: {value!r}")
    return ms
