"""The number of jobs by state, and by priority or name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from spark_bull.core.dialects.fields import FIELDS, value_of
from spark_bull.core.errors import expected
from spark_bull.core.model.javascript import LARGEST, whole
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.jobs.read import counts, read_jobs

#: The fields that jobs can be counted by.
BY: Final = ("priority", "name")
#: BullMQ: scores of prioritized jobs of one priority.
_SCORES_OF_PRIORITY: Final = 2**32


def counts_by(handle: QueueHandle, by: str, states: Sequence[str] = ()) -> dict[str, dict[Any, int]]:
    """The number of jobs by state and `by`, priority or name; without states that have no jobs.

    states: only these; none given: all. Raises OptionError for another `by`, DialectError for an unknown state.
    """
    if by not in BY:
        raise expected("by", "one of " + ", ".join(BY), by)
    for state in states:
        handle.dialect.state_key(state)
    found = {state: _counts(handle, by, state) for state in handle.dialect.states if not states or state in states}
    return {state: dict(sorted(counted.items())) for state, counted in found.items() if counted}


def _counts(handle: QueueHandle, by: str, state: str) -> dict[Any, int]:
    """The number of jobs of one state by value."""
    if by == "priority" and "prioritized" in handle.dialect.states:
        if state == "prioritized":
            return _prioritized(handle)
        if state in ("wait", "paused"):
            waiting = counts(handle)[state]
            return {0: waiting} if waiting else {}
    counted: Counter[Any] = Counter()
    for chunk in read_jobs(handle, [state], [by]):
        counted.update(chunk.column(by))
    values = {raw: value_of(FIELDS[by], raw) for raw in counted}
    merged: Counter[Any] = Counter()
    for raw, jobs in counted.items():
        merged[values[raw] or (0 if by == "priority" else "")] += jobs
    return merged


def _prioritized(handle: QueueHandle) -> dict[Any, int]:
    """The number of prioritized jobs by priority: two calls per priority, for any number of jobs."""
    key, found, least = handle.keys["prioritized"], {}, 0
    while first := handle.connection.call("ZRANGEBYSCORE", key, least, LARGEST, "WITHSCORES", "LIMIT", 0, 1):
        priority = whole(float(first[0][1])) // _SCORES_OF_PRIORITY
        least = (priority + 1) * _SCORES_OF_PRIORITY
        found[priority] = int(handle.connection.call("ZCOUNT", key, priority * _SCORES_OF_PRIORITY, f"({least}"))
    return found
