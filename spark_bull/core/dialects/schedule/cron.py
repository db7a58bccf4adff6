"""The next time of a cron pattern, as of cron-parser, the library that Bull and BullMQ use.

croniter searches the calendar. This module handles what the two libraries do differently: the syntax of fields, when
both days (of the month, of the week) must match, and daylight saving time.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone, tzinfo
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from spark_bull.core.errors import PatternError
from spark_bull.core.model.javascript import number_of, whole

_ALIASES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@hourly": "0 * * * *",
    "@minutely": "* * * * *",
    "@secondly": "* * * * * *",
    "@weekdays": "0 0 * * 1-5",
    "@weekends": "0 0 * * 0,6",
}
_DEFAULTS: Final = ("0", "*", "*", "*", "*", "*")
_MONTHS: Final = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_WEEKDAYS: Final = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_DAYS_IN_MONTH: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_ANY: Final = ("*", "?")
_ATOM: Final = re.compile(r"(?:([*?])|(\d+)(?:-(\d+))?)(?:/(\d+))?", re.ASCII)
_HASHED: Final = re.compile(r"H(?:\((\d+)-(\d+)\))?(?:/(\d+))?", re.ASCII)
_OFFSET: Final = re.compile(r"utc(?:([+-]\d{1,2})(?::(\d\d))?)?", re.ASCII | re.IGNORECASE)
_OWN_ZONE: Final = ("default", "local", "system")
_MINUTE_MS: Final = 60_000

_SECOND: Final = timedelta(seconds=1)
_HOUR: Final = timedelta(hours=1)
#: Maximum change of the UTC offset of a time zone.
_MAX_CHANGE: Final = timedelta(hours=3)


def next_time(pattern: str, after_ms: int, zone: str | float | None = None, *, classic: bool = False) -> int | None:
    """The first time of a pattern after `after_ms`, in ms since 1970; None when there is none.

    zone: name of a time zone, or a fixed offset from UTC in minutes; None: this machine's, as in Node. classic:
    parses as cron-parser before its version 5, which Bull and BullMQ 5 use. Raises PatternError for a pattern or a zone
    that can't be read, and for times that are not in the years 1 to 9999.
    """
    times = _times_of(pattern, classic)
    named, shift_ms = _zone_of(zone)
    try:
        start = datetime.fromtimestamp((after_ms + shift_ms) // 1000, timezone.utc)
        found = _first_after(times, start, named)
    except (OverflowError, OSError, ValueError) as error:
        if isinstance(error, PatternError):
            raise
        raise PatternError(f"expected a time in the years 1 to 9999 after {after_ms} ms since 1970: {error}") from None
    return None if found is None else int(found.timestamp()) * 1000 - shift_ms


#: The first distance, ms, in which a time is looked for, and the last one: a leap day may be eight years away.
_NEAR_MS: Final = 60_000
_FAR_MS: Final = 9 * 366 * 86_400_000


def time_before(pattern: str, before_ms: int, zone: str | float | None = None) -> int | None:
    """The last time of a pattern before `before_ms`; None when there is none in nine years. Raises PatternError."""
    distance, found = _NEAR_MS, None
    while distance < _FAR_MS and (found is None or found >= before_ms):
        found = next_time(pattern, before_ms - distance, zone)
        distance *= 2
    while found is not None and (following := next_time(pattern, found, zone)) is not None and following < before_ms:
        found = following
    return None if found is None or found >= before_ms else found


def check_zone(name: str) -> None:
    """Raises PatternError for a time zone that is unknown."""
    _zone_of(name)


class _Times(NamedTuple):
    """A parsed pattern, as fields for croniter. A day matches if one of the pairs (of month, of week) does."""

    seconds: str
    minutes: str
    hours: str
    months: str
    days: tuple[tuple[str, str], ...]
    every_hour: bool

    def after(self, wall: datetime) -> datetime | None:
        """The first match after a local time."""
        rest = f"{self.seconds} {self.minutes} {self.hours}"
        each = (_search(f"{rest} {of_month} {self.months} {of_week}", wall) for of_month, of_week in self.days)
        return min((found for found in each if found is not None), default=None)


def _search(expression: str, wall: datetime) -> datetime | None:
    # Imported late: few processes need it, importing it takes time, and packages sent by --py-files lack it.
    try:
        from croniter import CroniterBadDateError, CroniterError, croniter
    except ImportError:
        raise PatternError("expected the package croniter to read cron patterns, found none: pip install it") from None
    try:
        found: datetime = croniter(expression, wall, second_at_beginning=True).get_next(datetime)
    except CroniterBadDateError:
        return None
    except CroniterError as error:
        raise PatternError(f"expected a cron pattern, got one that means {expression!r}: {error}") from error
    return found


# reading a pattern


def _times_of(pattern: str, classic: bool) -> _Times:
    fields = _ALIASES.get(pattern, pattern).split()
    if len(fields) > len(_DEFAULTS):
        raise PatternError(f"expected a cron pattern of at most 6 fields, got: {pattern[:100]!r}")
    read = _Reader(pattern, classic)
    second, minute, hour, of_month, month, of_week = [*_DEFAULTS[: len(_DEFAULTS) - len(fields)], *fields]
    hours = read.values(hour, 0, 23)
    months = read.values(_numbered(month, _MONTHS, 1), 1, 12)
    return _Times(
        _listed(read.values(second, 0, 59)),
        _listed(read.values(minute, 0, 59)),
        _listed(hours),
        _listed(months),
        tuple(_days_of(read, of_month, _numbered(of_week, _WEEKDAYS, 0), months)),
        len(hours) == 24,
    )


class _Reader:
    """Reads the fields of one pattern."""

    def __init__(self, pattern: str, classic: bool) -> None:
        self.classic = classic
        self._pattern = pattern
        self._chance = random.random()

    def values(self, field: str, low: int, high: int) -> set[int]:
        """The numbers that a field stands for."""
        found: set[int] = set()
        for atom in self._chosen(field, low, high).split(","):
            found.update(self._range(atom, low, high))
        return found

    def _range(self, atom: str, low: int, high: int) -> Iterable[int]:
        match = _ATOM.fullmatch(atom)
        if match is None:
            raise self.bad(atom)
        anything, first, last, step = match.groups()
        start = low if anything else _number(first)
        stop = high if anything or (step and not last) else _number(last or first)
        if start < low or stop > high or start > stop or (step and not _number(step)):
            raise self.bad(atom)
        # Sunday is 0 and 7; for the older parser, a range that ends with 7 includes 0.
        sunday = [0] if high == 7 and stop == 7 and self.classic and (anything or last or step) else []
        return [*range(start, stop + 1, _number(step or "1")), *sunday]

    def _chosen(self, field: str, low: int, high: int) -> str:
        """The field with a random number for each `H`, as in cron-parser without a seed."""

        def pick(match: re.Match[str]) -> str:
            first, last, step = match.groups()
            start, stop = max(low, _number(first or "0")), min(high, _number(last)) if last else high
            width = _number(step) if step else high + 1
            if start > stop or not width:
                raise self.bad(match.group())
            chosen = range(start // width * width + int(self._chance * width), stop + 1, width) if step else ()
            within = [number for number in chosen if number >= start]
            return _listed(within or [start + int(self._chance * (stop - start + 1))])

        return _HASHED.sub(pick, field) if "H" in field and not self.classic else field

    def bad(self, part: str) -> PatternError:
        return PatternError(
            f"expected a cron pattern, got: {self._pattern[:100]!r} (its part {part[:100]!r} can't be read)"
        )


def _number(digits: str) -> int:
    """The number in a text of digits of any length; one beyond all limits counts as nine digits."""
    return int(digits.lstrip("0")[:9] or "0")


def _numbered(field: str, names: Sequence[str], first: int) -> str:
    """The field with numbers in place of names of months or days."""

    def number(match: re.Match[str]) -> str:
        name = match.group().lower()
        return str(names.index(name) + first) if name in names else match.group()

    return re.sub(r"[a-zA-Z]{3}", number, field)


def _listed(values: Iterable[int]) -> str:
    return ",".join(map(str, sorted(values)))


def _days_of(read: _Reader, of_month: str, of_week: str, months: set[int]) -> list[tuple[str, str]]:
    """Matching days, as pairs of fields for croniter with at most one restriction; a day has to match one pair."""
    atoms = of_month.split(",")
    dates = read.values(",".join(atom for atom in atoms if atom != "L") or "1", 1, 31) if atoms != ["L"] else set()
    last = ["l"] if "L" in atoms else []
    of_week, _, nth = of_week.partition("#")
    if nth and not re.fullmatch("[1-5]", nth):
        raise read.bad(f"#{nth}")
    ends = [int(atom[0]) % 7 for atom in of_week.split(",") if re.fullmatch("[0-7]L", atom)]
    plain = ",".join(atom for atom in of_week.split(",") if not re.fullmatch("[0-7]L", atom))
    weekdays = read.values(plain, 0, 7) if plain else set()
    if read.classic:
        any_date = len(dates) >= max(_DAYS_IN_MONTH[month - 1] for month in months)
        any_weekday = len(weekdays) == 8
    else:
        any_date, any_weekday = of_month in _ANY, of_week in _ANY and not nth
    weekdays = {day % 7 for day in weekdays}
    if nth and read.classic:
        # The older parser applies the number to all days, also to those that the day of the month matches.
        dates, last = {date for date in dates if (date + 6) // 7 == int(nth)}, []
        any_weekday = False
    by_date = [(",".join([*map(str, sorted(dates)), *last]), "*")] if dates or last else []
    if any_weekday:
        return by_date
    by_weekday = [("*", ",".join(f"{day}#{nth}" for day in weekdays) if nth else _listed(weekdays))] if weekdays else []
    by_weekday += [("*", f"l{day}") for day in ends]
    return by_weekday if any_date else by_date + by_weekday


# finding the times of a pattern


def _first_after(times: _Times, start: datetime, zone: tzinfo) -> datetime | None:
    """The first instant after `start` whose local time in a zone matches."""
    wall = times.after(_wall(start, zone))
    while wall is not None:
        instants = _instants_of(wall, zone)
        later = next((instant for instant in instants if instant > start), None)
        if later is not None:
            return _first_repeated(times, start, later, zone) or later
        if not instants:
            change = _change_before(_utc(wall, zone), zone)
            landing = _landing(times, wall, change, zone)
            if landing is not None:
                return landing
            wall = _wall(change, zone) - _SECOND
        wall = times.after(wall)
    return None


def _wall(instant: datetime, zone: tzinfo) -> datetime:
    """The local time of an instant in a zone."""
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)


def _utc(wall: datetime, zone: tzinfo, fold: int = 0) -> datetime:
    return wall.replace(tzinfo=zone, fold=fold).astimezone(timezone.utc)


def _instants_of(wall: datetime, zone: tzinfo) -> list[datetime]:
    """The instants of a local time: one, two when clocks are set back, none when the time is skipped."""
    both = (_utc(wall, zone, fold) for fold in (0, 1))
    return [instant for instant in both if _wall(instant, zone) == wall]


def _change_before(instant: datetime, zone: tzinfo) -> datetime:
    """The last change of the UTC offset before an instant, if it was within _MAX_CHANGE."""
    early, late = instant - _MAX_CHANGE, instant
    offset = late.astimezone(zone).utcoffset()
    while late - early > _SECOND:
        middle = early + (late - early) // 2
        middle = middle.replace(microsecond=0)
        if middle.astimezone(zone).utcoffset() == offset:
            late = middle
        else:
            early = middle
    return late


def _shift(change: datetime, zone: tzinfo) -> timedelta:
    """The difference of the UTC offset at a change; positive when clocks are set forward."""
    before, after = ((change - ago).astimezone(zone).utcoffset() for ago in (_SECOND, timedelta(0)))
    return (after or timedelta(0)) - (before or timedelta(0))


def _landing(times: _Times, skipped: datetime, change: datetime, zone: tzinfo) -> datetime | None:
    """The time of a skipped match: in the hour after the change, unless that is at midnight, or every hour matches."""
    after = _wall(change, zone)
    shift = _shift(change, zone)
    before = after - shift
    if times.every_hour or shift < _HOUR or before.hour == 0:
        return None
    found = times._replace(hours=str(after.hour)).after(after - _SECOND)
    return _utc(found, zone) if found and found.date() == skipped.date() else None


def _first_repeated(times: _Times, start: datetime, found: datetime, zone: tzinfo) -> datetime | None:
    """A match before `found`, after clocks were set back; by whole hours only if every hour matches."""
    since = max(start, found - _MAX_CHANGE)
    back = (since.astimezone(zone).utcoffset() or timedelta(0)) - (found.astimezone(zone).utcoffset() or timedelta(0))
    if back <= timedelta(0) or (back >= _HOUR and not times.every_hour):
        return None
    change = _change_before(found, zone)
    wall = _wall(change, zone)
    match = times.after(wall - _SECOND)
    again = change + (match - wall) if match else found
    return again if start < again < found else None


# zones


def _zone_of(zone: str | float | None) -> tuple[tzinfo, int]:
    """A time zone, and the ms to add to a time in it. Fixed offsets are UTC: Python's are shorter than a day, as Node's
    need not be.
    """
    if isinstance(zone, (int, float)):
        return timezone.utc, whole(number_of(zone) * _MINUTE_MS)
    if not zone or zone.lower() in _OWN_ZONE:
        return _own_zone(), 0
    fixed = _OFFSET.fullmatch(zone)
    if fixed:
        hours, minutes = fixed[1] or "+0", int(fixed[2] or 0)
        return timezone.utc, (int(hours) * 60 + (-minutes if hours[0] == "-" else minutes)) * _MINUTE_MS
    return _named(zone), 0


def _named(name: str) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        known = _zone_names().get(name.lower())
    if known is None:
        raise PatternError(
            f"expected the name of a time zone, such as Europe/Berlin, got: {name[:100]!r}; "
            "if it is one, pip install tzdata"
        )
    return ZoneInfo(known)


@cache
def _zone_names() -> dict[str, str]:
    """The names of time zones by their small letters: Node takes a name in any case."""
    return {name.lower(): name for name in available_timezones()}


@cache
def _own_zone() -> tzinfo:
    """This machine's time zone."""
    name = os.environ.get("TZ", "").lstrip(":")
    if name:
        return _named(name)
    try:
        with Path("/etc/localtime").open("rb") as file:
            return ZoneInfo.from_file(file, key="localtime")
    except OSError:
        return timezone.utc
