"""Checks the properties of a schedule."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from spark_bull.clock import LAST_ETA_MS
from spark_bull.dialects.base import Dialect
from spark_bull.dialects.schedule.cron import check_zone
from spark_bull.dialects.schedule.schedules import Schedule
from spark_bull.dialects.terms import DELIVERY, EXPIRE_AFTER, EXPIRE_AT, SPREAD_MS
from spark_bull.errors import OptionError, PatternError, encodable, expected

#: Properties of a schedule, by their names in columns.
NAMES: Final = (
    "id",
    "every",
    "pattern",
    "tz",
    "name",
    "data",
    "limit",
    "offset",
    "startDate",
    "endDate",
    "opts",
)
#: Defaults of a queue's jobs that also apply to the jobs of its schedules.
_DEFAULT_OPTIONS: Final = ("priority", "attempts", "backoff", "lifo", "removeOnComplete", "removeOnFail")
#: Options that the schedule sets, and those that have no effect on its jobs.
_OWN_OPTIONS: Final = ("repeat", "jobId", "delay", "timestamp", "prevMillis", "repeatJobKey")
_NO_EFFECT: Final = ("deduplication", "debounce", "parent", EXPIRE_AFTER, EXPIRE_AT, SPREAD_MS, DELIVERY)


def checked_schedule(dialect: Dialect, row: Mapping[str, Any], defaults: Mapping[str, Any], now: int) -> Schedule:
    """Checks the properties of a schedule.

    row: by the names of NAMES, `data` as JSON text; None means not given. defaults: those of the queue's jobs. now:
    time of Redis, ms. Raises OptionError or DialectError.
    """
    dialect.require("schedules")
    given = {name: value for name, value in row.items() if value is not None}
    schedule = Schedule(
        id=_id(given),
        data=given.get("data", "{}"),
        opts=_options(dialect, given, defaults),
        name=_text(given, "name") or defaults.get("name"),
        every=_number(given, "every", 1),
        pattern=_text(given, "pattern"),
        tz=_text(given, "tz"),
        limit=_number(given, "limit", 1),
        offset=_number(given, "offset", 0),
        start_date=_number(given, "startDate", 0),
        end_date=_number(given, "endDate", 0),
    )
    _check_rhythm(schedule)
    _check_dates(schedule, now)
    return schedule


def _id(given: Mapping[str, Any]) -> str:
    schedule_id = given.get("id")
    if not isinstance(schedule_id, str) or not schedule_id:
        raise expected("id", "the id of a schedule, a text that is not empty", schedule_id)
    if re.search(r":\d+$", schedule_id):
        raise OptionError(
            f"expected `id` not to end with ':' and a number, as the ids of jobs of schedules do, got: {schedule_id!r}"
        )
    return encodable("id", schedule_id)


def _text(given: Mapping[str, Any], name: str) -> str | None:
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        raise expected(name, "a text", value)
    return value and encodable(name, value)


def _number(given: Mapping[str, Any], name: str, low: int) -> int | None:
    value = given.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise expected(name, _NUMBERS[name].format(low), value)
    return value


_NUMBERS: Final = {
    "every": "an interval, ms >= {}",
    "limit": "a number of jobs >= {}",
    "offset": "ms >= {}",
    "startDate": "ms since 1970",
    "endDate": "ms since 1970",
}


def _check_rhythm(schedule: Schedule) -> None:
    if (schedule.every is None) == (schedule.pattern is None):
        got = "neither" if schedule.every is None else "both"
        raise OptionError(f"expected one of `every` (ms) and `pattern` (cron), got {got}")
    if schedule.offset is not None and (schedule.every is None or schedule.offset >= schedule.every):
        what = "expected no `offset` with `pattern`" if schedule.every is None else "expected `offset` below `every`"
        raise OptionError(f"{what}, got: {schedule.offset}")
    if schedule.tz is not None:
        try:
            check_zone(schedule.tz)
        except PatternError as error:
            raise OptionError(f"`tz`: {error}") from None


def _check_dates(schedule: Schedule, now: int) -> None:
    end, start = schedule.end_date, schedule.start_date
    if end is not None and end <= now:
        raise expected("endDate", "a time in the future", end)
    if end is not None and start is not None and end <= start:
        raise OptionError(f"expected `endDate` after `startDate`, got: {end} and {start}")
    if start is not None and start > LAST_ETA_MS:
        raise expected("startDate", "a time before 2039-09-07, the last one that the protocol's scores can hold", start)


def _options(dialect: Dialect, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    options = {name: defaults[name] for name in _DEFAULT_OPTIONS if name in defaults}
    for source in (defaults, given):
        options |= _object(source.get("opts"))
    for name in (*_OWN_OPTIONS, *_NO_EFFECT):
        if options.get(name) is not None:
            why = "the schedule sets it" if name in _OWN_OPTIONS else "it has no effect on jobs of schedules"
            raise OptionError(f"expected no `{name}` in `opts`: {why}; leave it out")
    prepared = dialect.prepare(options)
    return options | ({"priority": prepared.priority} if "priority" in options else {})


def _object(value: Any) -> Mapping[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise expected("opts", "a JSON object", value[:200]) from None
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise expected("opts", "a JSON object", value)
    return value
