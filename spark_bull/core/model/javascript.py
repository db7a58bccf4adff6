"""Values as JavaScript reads them: other programs write a job's options, and the Node libraries use what they find."""

from __future__ import annotations

import re
from math import inf, isfinite, isnan, nan, trunc
from typing import Final

#: The largest whole number of JavaScript, about. Larger ones count as this one.
LARGEST: Final = 2**53

_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_DIGITS: Final = re.compile(r"\s*([+-]?)(0x[0-9a-f]+|\d+)", re.ASCII | re.IGNORECASE)
_WITH_BASE: Final = re.compile(r"0(?:x[0-9a-f]+|o[0-7]+|b[01]+)", re.ASCII | re.IGNORECASE)
_INFINITY: Final = re.compile(r"([+-]?)Infinity")


def number_of(value: object) -> float:
    """`Number(value)` of a value of JSON: NaN for what is no number, 0 for null and an empty text."""
    value = _of_list(value)
    if isinstance(value, str):
        return _number_in(value.strip())
    if isinstance(value, (int, float)):
        try:
            return float(value)
        except OverflowError:
            return inf if value > 0 else -inf
    return 0.0 if value is None or value == [] else nan


def given_number(value: object) -> float | None:
    """A number, or the number in a text; None for all else, also for null and an empty text."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    found = number_of(value) if is_number or (isinstance(value, str) and value.strip()) else nan
    return None if isnan(found) else found


def whole(number: float) -> int:
    """A number without its fraction, from -LARGEST to LARGEST; 0 for NaN."""
    return 0 if isnan(number) else trunc(max(-LARGEST, min(number, LARGEST)))


def ceiling(number: float) -> int:
    """A number rounded up, with the limits of `whole`."""
    return whole(number) + (number % 1 > 0)


def whole_in(text: str | bytes) -> int | None:
    """The whole number at the start of a text, as `parseInt` reads it; None for none, and beyond LARGEST.

    Unlike there, an exponent counts: Lua writes large numbers with one.
    """
    if len(text) < 16 and text.isascii() and text.isdigit():
        return int(text)
    found = _NUMBER.match((text if isinstance(text, str) else text.decode("latin-1")).strip())
    number = float(found.group()) if found else inf
    return int(number) if isfinite(number) and abs(number) <= LARGEST else None


def parsed_int(value: object) -> int:
    """`parseInt(value)` of a value of JSON; 0 for NaN."""
    value = _of_list(value)
    if not isinstance(value, str):
        number = nan if value is None or isinstance(value, bool) else number_of(value)
        # JavaScript writes the largest numbers with an exponent, and reads what is before it.
        value = f"{number:.0f}" if 1e15 < abs(number) < 1e21 else repr(number)
    digits = _DIGITS.match(value)
    return whole(float(digits[1] + "1") * _number_in(digits[2])) if digits else 0


def is_true(value: object) -> bool:
    """Whether JavaScript takes a value of JSON for true: each object and list, and each text but ''."""
    return bool(value) or isinstance(value, (dict, list))


def _of_list(value: object) -> object:
    """The item of a list of one, which has the same text; another value as it is."""
    while isinstance(value, list) and len(value) == 1 and not isinstance(value[0], bool):
        value = value[0]
    return value


def _number_in(text: str) -> float:
    if _NUMBER.fullmatch(text):
        return float(text)
    if _WITH_BASE.fullmatch(text):
        # A longer text is beyond all limits, and slow to read.
        return float(int(text[:200], 0))
    infinite = _INFINITY.fullmatch(text)
    if infinite:
        return -inf if infinite[1] == "-" else inf
    return nan if text else 0.0
