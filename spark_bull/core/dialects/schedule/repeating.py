"""Job schedulers of Bull and BullMQ: what one is, its limits and dates, and the next time of a cron pattern."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timezone
from hashlib import md5
from math import isnan
from types import NoneType
from typing import Any, Final, NamedTuple

from spark_bull.core.clock import LAST_ETA_MS, moment_of, ms_of
from spark_bull.core.dialects.schedule.cron import next_time
from spark_bull.core.errors import OptionError, PatternError
from spark_bull.core.model import javascript
from spark_bull.core.model.queues import Scheduler
from spark_bull.core.well_formed import well_formed_json

#: Job schedulers with a shorter interval are warned about, ms.
SHORTEST_MS: Final = 100


class NewScheduler(NamedTuple):
    """A checked job scheduler. Times are ms since 1970, intervals ms; `data` is JSON text.

    opts: options of its jobs, by the names of the Node library. name: None if not given.
    """

    id: str
    data: str
    opts: dict[str, Any]
    name: str | None = None
    every: int | None = None
    pattern: str | None = None
    tz: str | None = None
    limit: int | None = None
    offset: int | None = None
    start_date: int | None = None
    end_date: int | None = None

    @property
    def is_frequent(self) -> bool:
        """Whether it runs more often than is sensible."""
        return self.every is not None and self.every < SHORTEST_MS

    def repeat(self, pattern_name: str = "pattern") -> dict[str, Any]:
        """The option `repeat` of its first job. pattern_name: name of the pattern in the Node library."""
        given = {
            "every": self.every,
            pattern_name: self.pattern,
            "tz": self.tz,
            "limit": self.limit,
            "offset": self.offset or None,
            "startDate": self.start_date,
            "endDate": self.end_date,
            "count": 1,
        }
        return {name: value for name, value in given.items() if value is not None}


def next_or_error(scheduler: NewScheduler, due: int | None) -> int:
    """The time of the first job. Raises OptionError for a job scheduler without one."""
    if due is None:
        until = "" if scheduler.end_date is None else f" before `endDate` ({scheduler.end_date})"
        raise OptionError(f"expected `pattern` to have a next time{until}, got: {scheduler.pattern!r}")
    if due > LAST_ETA_MS:
        raise OptionError(f"expected a first job before 2039-09-07, the last time that can be stored, got: {due}")
    return due


Repeat = Mapping[str, Any]


def read_opts(text: str) -> dict[str, Any]:
    """The options of a scheduled job, whose texts Redis can hold, as in names of keys. Raises PatternError."""
    try:
        opts = _DECODER.decode(well_formed_json(text) or "{}")
    except (ValueError, RecursionError):
        opts = None
    if not isinstance(opts, dict):
        raise PatternError(f"expected `opts` to be a JSON object, got: {text[:80]!r}")
    return opts


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


#: One decoder for all calls, as making one takes longer than decoding a short text.
_DECODER: Final = json.JSONDecoder(parse_constant=_refused)


def number_of(fields: Mapping[str, Any], name: str) -> int | None:
    """A whole number in the options of a job, None for none. Raises PatternError."""
    value = fields.get(name)
    if value is None:
        return None
    number = javascript.number_of(value)
    if isnan(number):
        raise PatternError(f"expected `{name}` to be a number, got: {str(value)[:100]!r}")
    return javascript.whole(number)


def md5_text(text: str) -> str:
    """The hash by which repeatable jobs name their jobs."""
    return md5(text.encode(), usedforsecurity=False).hexdigest()


def iteration_of(repeat: Repeat) -> int:
    """The number of the next job. Raises PatternError."""
    return (number_of(repeat, "count") or 0) + 1


def is_over(repeat: Repeat, now: int) -> bool:
    """Whether a job scheduler has reached its limit of jobs, or its end date. Raises PatternError."""
    limit, end = number_of(repeat, "limit"), time_of(repeat, "endDate")
    return (limit is not None and iteration_of(repeat) > limit) or (end is not None and now > end)


def time_of(repeat: Repeat, name: str) -> int | None:
    """A date of a job scheduler in ms since 1970: JSON has ms, or the text of a date. Raises PatternError."""
    value = repeat.get(name)
    if not value:
        return None
    if not isinstance(value, str):
        return number_of(repeat, name)
    try:
        date = moment_of(value)
        if date.tzinfo is None and "T" not in value:
            date = date.replace(tzinfo=timezone.utc)
        return ms_of(date.astimezone(timezone.utc))
    except (ValueError, OverflowError, OSError):
        raise PatternError(f"expected `{name}` to be ms since 1970 or an ISO date, got: {value[:100]!r}") from None


def next_of_pattern(repeat: Repeat, pattern: object, now: int, *, classic: bool) -> int | None:
    """The next time of a cron pattern; None: none before the job scheduler ends. Raises PatternError."""
    start, end = time_of(repeat, "startDate"), time_of(repeat, "endDate")
    zone = "UTC" if classic and repeat.get("utc") else repeat.get("tz")
    if isinstance(zone, bool) or not isinstance(zone, (str, int, float, NoneType)) or not isinstance(pattern, str):
        got = f"{str(pattern)[:100]!r}, {str(zone)[:100]!r}"
        raise PatternError(f"expected a cron pattern and a time zone as texts, got: {got}")
    found = next_time(pattern, max(now, start or 0), zone, classic=classic)
    return None if found is None or (end is not None and found > end) else found


def repeatable(queue: str, member: str, next_ms: int) -> Scheduler:
    """A repeatable job of Bull, or an older one of BullMQ 5, whose member is `name:id:endDate:tz:pattern`.

    The last two parts are one, the interval, if there is no pattern in Bull. The id of a scheduler without one is the
    member.
    """
    name, own_id, end, tz, pattern = [*member.split(":", 4), "", "", "", ""][:5]
    rhythm = pattern or tz
    every = javascript.whole_in(rhythm) if rhythm.isdigit() else None
    return Scheduler(
        queue=queue,
        id=own_id or member,
        name=name,
        next=next_ms,
        every=every,
        pattern=None if every is not None else pattern or None,
        tz=(pattern and tz) or None,
        end_date=javascript.whole_in(end),
    )
