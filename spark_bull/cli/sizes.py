"""Parses sizes and numbers of commands, and formats sizes."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from math import inf, isfinite
from typing import Final

#: Units of sizes in bytes, the largest first.
UNITS: Final = {"TB": 10**12, "GB": 10**9, "MB": 10**6, "kB": 1_000, "B": 1}
_SIZE: Final = re.compile(rf"([0-9]+(?:\.[0-9]+)?)({'|'.join(UNITS)})?")


def size(text: str) -> int:
    """Parses `200B`, `1kB` or `2MB` for argparse; returns bytes, which are also the unit of a bare number."""
    match = _SIZE.fullmatch(text.strip())
    if not match or not isfinite(float(match[1])):
        raise ArgumentTypeError(f"expected a size such as 200B, 1kB, 2MB or 16GB, got: {text!r}")
    return round(float(match[1]) * UNITS[match[2] or "B"])


def positive(text: str) -> float:
    """Parses a number above 0, such as 1e8, for argparse."""
    try:
        number = float(text)
    except ValueError:
        number = inf
    if not 0 < number < inf:
        raise ArgumentTypeError(f"expected a number above 0 such as 5 or 1e8, got: {text!r}")
    return number


def size_text(size: float) -> str:
    """Formats bytes with the unit in which they are at least 1: `2.1 GB`."""
    for unit, factor in UNITS.items():
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return f"{size:,.0f} B"
