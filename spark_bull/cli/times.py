"""Times and durations as people read and write them."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from datetime import datetime, timezone
from typing import Final

#: Unit -> ms, the largest first: as written on the command line, and as shown.
_UNITS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_SHOWN: Final = {"d": "d", "h": "h", "m": "min", "s": "s", "ms": "ms"}
_DURATION: Final = re.compile(rf"([0-9]+(?:\.[0-9]+)?)({'|'.join(_UNITS)})?")
_NOW_MS: Final = 1_000


def milliseconds(text: str, bare: str = "ms") -> int:
    """`1d`, `2h`, `5m`, `30s` or `500ms` in ms; `bare`: the unit of a number that has none. A type for argparse."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ArgumentTypeError(f"expected a duration such as 500ms, 30s, 5m, 2h or 1d, got: {text!r}")
    return round(float(match[1]) * _UNITS[match[2] or bare])


def seconds(text: str) -> float:
    """The same in s, of which a bare number is one, too."""
    return milliseconds(text, "s") / 1_000


def utc(ms: int) -> str:
    """A time as `2026-01-31 08:00:00Z`; the number itself when no calendar has it."""
    try:
        time = datetime.fromtimestamp(ms / 1000, timezone.utc)
    except (OverflowError, OSError, ValueError):
        return str(ms)
    return f"{time:%Y-%m-%d %H:%M:%S}Z"


def relative(ms: int, now_ms: int) -> str:
    """`5 min ago` or `in 5 min`."""
    distance = abs(ms - now_ms)
    if distance < _NOW_MS:
        return "now"
    return f"in {duration(distance, 1)}" if ms > now_ms else f"{duration(distance, 1)} ago"


def duration(ms: int, parts: int = 2) -> str:
    """`2 h 5 min`: the largest units of a duration, at most so many."""
    shown, left = [], ms
    for unit, size in _UNITS.items():
        count, left = divmod(left, size)
        if count:
            shown.append(f"{count:,} {_SHOWN[unit]}")
        if len(shown) == parts or (shown and not count):
            break
    return " ".join(shown) or "0 s"
