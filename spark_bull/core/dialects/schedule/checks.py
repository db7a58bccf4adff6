"""Checks the properties of a job scheduler."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

from spark_bull.core.clock import LAST_ETA_MS
from spark_bull.core.dialects.base import Dialect, opts_object
from spark_bull.core.dialects.schedule.cron import check_zone
from spark_bull.core.dialects.schedule.repeating import NewScheduler
from spark_bull.core.dialects.terms import DELIVERY, EXPIRE_AFTER_MS, EXPIRE_AT, SPREAD_MS
from spark_bull.core.errors import OptionError, PatternError, encodable, expected

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


#: Properties of a job scheduler, by their names in columns.
NAMES: Final = ("id", "every", "pattern", "tz", "name", "data", "limit", "offset", "startDate", "endDate", "opts")
#: Defaults of a queue's jobs that also apply to the jobs of its job schedulers.
_DEFAULT_OPTIONS: Final = ("priority", "attempts", "backoff", "lifo", "removeOnComplete", "removeOnFail")
#: Options that the job scheduler sets, and those that have no effect on its jobs.
_OWN_OPTIONS: Final = ("repeat", "jobId", "delay", "timestamp", "prevMillis", "repeatJobKey")
#: In Node, too: a job scheduler adds its next job in any case, as that continues it, and takes no deduplication id.
_NO_EFFECT: Final = ("deduplication", "debounce", "parent", EXPIRE_AFTER_MS, EXPIRE_AT, SPREAD_MS, DELIVERY)


def checked_scheduler(dialect: Dialect, row: Mapping[str, Any], defaults: Mapping[str, Any], now: int) -> NewScheduler:
    """Checks the properties of a job scheduler.

    row: by the names of NAMES, `data` as JSON text; None means not given. defaults: defaults of the queue's jobs. now:
    time of Redis, ms. Raises OptionError or DialectError.
    """
    dialect.require("schedulers")
    given = {name: value for name, value in row.items() if value is not None}
    scheduler = NewScheduler(
        id=_id(given),
        data=given.get("data", "{}"),
        opts=_options(dialect, given, defaults),
        name=_given_text(given, "name") or defaults.get("name"),
        every=_number(given, "every", 1),
        pattern=_given_text(given, "pattern"),
        tz=_given_text(given, "tz"),
        limit=_number(given, "limit", 1),
        offset=_number(given, "offset", 0),
        start_date=_number(given, "startDate", 0),
        end_date=_number(given, "endDate", 0),
    )
    _check_rhythm(scheduler)
    _check_dates(scheduler, now)
    return scheduler


def _id(given: Mapping[str, Any]) -> str:
    scheduler_id = given.get("id")
    if not isinstance(scheduler_id, str) or not scheduler_id:
        raise expected("id", "the id of a job scheduler, a text that is not empty", scheduler_id)
    # An older repeatable job of BullMQ has its member as an id, name:id:endDate:tz:pattern.
    if re.search(r":\d+$", scheduler_id) and scheduler_id.count(":") < 4:
        raise OptionError(
            f"expected `id` not to end with ':' and a number, as ids of jobs of schedulers do, got: {scheduler_id!r}"
        )
    return encodable("id", scheduler_id)


def _given_text(given: Mapping[str, Any], name: str) -> str | None:
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        raise expected(name, "a text", value)
    return value and encodable(name, value)


def _number(given: Mapping[str, Any], name: str, low: int) -> int | None:
    value = given.get(name)
    if value is None:
        return None
    if name in _INTERVALS:
        value = interval_ms(name, value)
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise expected(name, _NUMBERS[name].format(low), value)
    return value


_INTERVALS: Final = ("every", "offset")
_NUMBERS: Final = {
    "every": "an interval, ms >= {}, or a duration such as PT15M",
    "limit": "a number of jobs >= {}",
    "offset": "ms >= {}, or a duration such as PT15M",
    "startDate": "ms since 1970",
    "endDate": "ms since 1970",
}


def _check_rhythm(scheduler: NewScheduler) -> None:
    if (scheduler.every is None) == (scheduler.pattern is None):
        got = "neither" if scheduler.every is None else "both"
        raise OptionError(f"expected one of `every` (ms) and `pattern` (cron), got {got}")
    if scheduler.offset is not None and (scheduler.every is None or scheduler.offset >= scheduler.every):
        what = "expected no `offset` with `pattern`" if scheduler.every is None else "expected `offset` below `every`"
        raise OptionError(f"{what}, got: {scheduler.offset}")
    if scheduler.tz is not None:
        try:
            check_zone(scheduler.tz)
        except PatternError as error:
            raise OptionError(f"`tz`: {error}") from None


def _check_dates(scheduler: NewScheduler, now: int) -> None:
    end, start = scheduler.end_date, scheduler.start_date
    if end is not None and end <= now:
        raise expected("endDate", "a time in the future", end)
    if end is not None and start is not None and end <= start:
        raise OptionError(f"expected `endDate` after `startDate`, got: {end} and {start}")
    if start is not None and start > LAST_ETA_MS:
        raise expected("startDate", "a time before 2039-09-07, the last one that the protocol's scores can hold", start)


def _options(dialect: Dialect, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    options = {name: defaults[name] for name in _DEFAULT_OPTIONS if name in defaults}
    for source in (defaults, given):
        if source.get("opts") is not None:
            options |= opts_object(source["opts"])
    for name in (*_OWN_OPTIONS, *_NO_EFFECT):
        if options.get(name) is not None:
            why = "the job scheduler sets it" if name in _OWN_OPTIONS else "it has no effect on jobs of job schedulers"
            raise OptionError(f"expected no `{name}` in `opts`: {why}; leave it out")
    prepared = dialect.prepare(options)
    return options | ({"priority": prepared.priority} if "priority" in options else {})
