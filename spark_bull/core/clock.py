"""The two clocks, epoch time for what is stored and monotonic time for waiting, and texts of times and durations."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta, timezone
from math import inf
from typing import Final

#: The score of a delayed job is when it is due, ms since 1970, times this; the rest is an order within the ms.
DELAYED_SCALE: Final = 4096
#: Maximum time of a delayed job: its score must stay below 2^53.
LAST_ETA_MS: Final = 2**53 // DELAYED_SCALE - 1


def epoch_ms() -> int:
    """Returns the time in ms since 1970-01-01 UTC, for stored values."""
    return time.time_ns() // 1_000_000


#: Returns the monotonic time in s, for timeouts and measurements.
monotonic_s: Final = time.monotonic


#: Units of durations, ms, the largest first.
UNITS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_SHOWN: Final = {"d": "d", "h": "h", "m": "min", "s": "s", "ms": "ms"}
_NOW_MS: Final = 1_000
#: What Python 3.10 does not read in a time of ISO 8601.
_FRACTION: Final = re.compile(r"[.,]([0-9]+)")
_OFFSET: Final = re.compile(r"(?<=[0-9]{2})([+-][0-9]{2})([0-9]{2})$")
_DURATION: Final = re.compile(rf"([0-9]+(?:\.[0-9]+)?)({'|'.join(UNITS)})")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


def moment_of(text: str) -> datetime:
    """Parses a date or a time of ISO 8601. Raises ValueError.

    Python 3.10 knows neither `Z`, nor offsets without a colon, nor fractions of a second that have not 3 or 6 digits.
    """
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        time = _FRACTION.sub(lambda found: f".{found[1][:6]:0<6}", text)
        return datetime.fromisoformat(_OFFSET.sub(r"\1:\2", time.replace("Z", "+00:00")))


def ms_of(moment: datetime) -> int:
    """ms since 1970, rounded down, without the errors of floats. moment: in UTC if it has no time zone."""
    return ((moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)) - _EPOCH) // timedelta(milliseconds=1)


def utc(ms: int) -> str:
    """Formats ms since 1970 as `2026-01-31 08:00:00Z`; returns the number if it is out of range."""
    try:
        time = datetime.fromtimestamp(ms / 1000, timezone.utc)
    except (OverflowError, OSError, ValueError):
        return str(ms)
    return f"{time:%Y-%m-%d %H:%M:%S}Z"


def relative(ms: int, now_ms: int) -> str:
    """Formats a time relative to now: `5 min ago` or `in 5 min`."""
    distance = abs(ms - now_ms)
    if distance < _NOW_MS:
        return "now"
    return f"in {duration(distance, 1)}" if ms > now_ms else f"{duration(distance, 1)} ago"


def duration(ms: int, parts: int = 2) -> str:
    """Formats a duration with its `parts` largest units: `2 h 5 min`."""
    shown, left = [], ms
    for unit, size in UNITS.items():
        count, left = divmod(left, size)
        if count:
            shown.append(f"{count:,} {_SHOWN[unit]}")
        if len(shown) == parts or (shown and not count):
            break
    return " ".join(shown) or "0 s"


def milliseconds_of(text: str) -> int | None:
    """Parses `1d`, `2h`, `5m`, `30s`, `500ms` or `0`; None: the text is no duration."""
    match = _DURATION.fullmatch(text.strip())
    ms = float(match[1]) * UNITS[match[2]] if match else 0.0 if text.strip() == "0" else inf
    return None if ms == inf else round(ms)
