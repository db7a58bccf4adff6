"""The texts of times and dates, as JavaScript writes and reads them.

They are ISO 8601 with milliseconds, in UTC if they have a time zone. Years have four digits, or six with a sign.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

from spark_bull.core.errors import OptionError
from spark_bull.spark.platform.lazy_arrow import pa, pc

#: The largest distance from 1970 that a time of JavaScript has, ms.
MAX_MS: Final = 8_640_000_000_000_000
_DAY_MS: Final = 86_400_000
#: After 400 years, the calendar repeats.
_CYCLE_YEARS: Final = 400
_CYCLE_MS: Final = 146_097 * _DAY_MS
#: The years 0 to 9999, as ms since 1970.
_FOUR_DIGITS: Final = range(-62_167_219_200_000, 253_402_300_800_000)


def ms_of(array: pa.Array) -> pa.Array:
    """Timestamps as whole ms since 1970, rounded down.

    The time zone, which may repeat an hour or be unknown to Arrow, does not matter.
    """
    us = pc.cast(array.view(pa.timestamp(array.type.unit)), pa.timestamp("us"), safe=False).view(pa.int64())
    ms = pc.divide(us, 1000)
    return pc.subtract(ms, pc.cast(pc.greater(pc.multiply(ms, 1000), us), pa.int64()))


def time_texts(array: pa.Array, name: str) -> pa.Array:
    """The texts of timestamps. name: of their field, for the OptionError about a time that JavaScript can't read."""
    zone = "" if array.type.tz is None else "Z"
    return _texts(ms_of(array), f"%Y-%m-%dT%H:%M:%S{zone}", lambda ms: time_text(name, ms) + zone)


def date_texts(array: pa.Array, name: str) -> pa.Array:
    """The texts of dates, in days (`date32`). name: as above."""
    ms = pc.multiply(pc.cast(array.view(pa.int32()), pa.int64()), _DAY_MS)
    return _texts(ms, "%Y-%m-%d", lambda ms: date_text(name, ms // _DAY_MS))


def time_text(name: str, ms: int) -> str:
    """The text of a time without a zone, in ms since 1970; raises OptionError for one that JavaScript can't read."""
    if abs(ms) > MAX_MS:
        raise OptionError(
            f"expected each time in `{name}` to be one that JavaScript can read (years -271821 to 275760), got "
            f"one {ms} ms after 1970: write it as a number or a STRING"
        )
    cycles, rest = divmod(ms, _CYCLE_MS)
    moment = datetime(1970, 1, 1) + timedelta(milliseconds=rest)
    year = moment.year + cycles * _CYCLE_YEARS
    digits = f"{year:04}" if 0 <= year <= 9999 else f"{year:+07}"
    return digits + moment.isoformat(timespec="milliseconds")[4:]


def date_text(name: str, days: int) -> str:
    """The text of a date, in days since 1970; raises as `time_text`."""
    return time_text(name, days * _DAY_MS).partition("T")[0]


def _texts(ms: pa.Array, pattern: str, text_of: Callable[[int], str]) -> pa.Array:
    bounds: dict[str, Any] = pc.min_max(ms).as_py()
    if all(bound is None or bound in _FOUR_DIGITS for bound in bounds.values()):
        # Arrow has no years of six digits, and leaves the zone of the pattern as it is.
        return pc.strftime(ms.view(pa.timestamp("ms")), pattern)
    return pa.array([None if one is None else text_of(one) for one in ms.to_pylist()], pa.string())
