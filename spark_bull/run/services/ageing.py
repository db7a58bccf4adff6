"""Ageing: jobs that have waited for long get a higher priority, so that others can't keep them from running."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from spark_bull.core.dialects.features import lacks
from spark_bull.core.dialects.terms import priority_number
from spark_bull.core.errors import OptionError
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.work import verbs

log = logging.getLogger("spark_bull")

_PRIORITY: Final = "critical"
_EXPECTED: Final = 'an object such as {"after_ms": 600000, "priority": "high"} (by default critical)'
#: How often jobs are looked at within the time that they have to wait, and the limits of this interval, s.
_ROUNDS, _MIN_S, _MAX_S = 10, 1.0, 60.0


class Ageing(NamedTuple):
    """Jobs that have waited for `after_ms` get this priority, if theirs is lower."""

    after_ms: int
    priority: int

    @property
    def interval_s(self) -> float:
        """How often to look for such jobs, s."""
        return min(_MAX_S, max(_MIN_S, self.after_ms / 1000 / _ROUNDS))


def ageing_of(given: Mapping[str, Any] | None) -> Ageing | None:
    """Checks the argument `ageing` of a Promoter. Raises OptionError."""
    if given is None:
        return None
    rule = given if isinstance(given, Mapping) else {}
    after = rule.get("after_ms") if set(rule) <= {"after_ms", "priority"} else None
    if not isinstance(after, int) or isinstance(after, bool) or after < 1:
        raise OptionError(f"expected `ageing` to be {_EXPECTED}, got: {given!r}")
    try:
        priority = priority_number(rule.get("priority", _PRIORITY))
    except OptionError as error:
        raise OptionError(f"`ageing`: {error}") from None
    if priority == 0:
        raise OptionError("expected the priority of `ageing` to be at least 1, got: 0")
    return Ageing(after, priority)


def age_jobs(handle: QueueHandle, ageing: Ageing) -> int:
    """Ages the jobs of a queue of BullMQ; returns their number. Other queues have no place for them."""
    if not handle.dialect.has("ageing"):
        _warn_of_dialect(handle.keys.base, handle.dialect.name)
        return 0
    moved, first = 0, 1
    while first:
        some, first = verbs.age(handle, ageing.priority, ageing.after_ms, first=first)
        moved += some
    return moved


@cache
def _warn_of_dialect(base: str, dialect: str) -> None:
    log.warning("queue %s: %s", base.rstrip(":"), lacks("ageing", dialect, "`ageing`"))
