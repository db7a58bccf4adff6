"""A job scheduler to create or change: when its jobs run, and what they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from spark_bull.core.clock import LAST_ETA_MS
from spark_bull.core.errors import OptionError

#: Job schedulers with a shorter interval are warned about, ms.
SHORTEST_MS: Final = 100


@dataclass(frozen=True)
class NewScheduler:
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
        """The option `repeat` of its first job. pattern_name: that of the pattern in the Node library."""
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
