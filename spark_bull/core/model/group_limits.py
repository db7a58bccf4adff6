"""Groups of jobs: how many jobs of one may run at the same time, and start in a period, and what is known of it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Final

from spark_bull.core.errors import encodable, expected

_EXPECTED: Final = (
    'an object such as {"by": "tenant", "max": 5, "duration_ms": 1000, "concurrency": 2}: `by` is a field of the '
    "payload, the numbers are positive integers, and `max` and `duration_ms`, and `concurrency`, may be left out"
)


@dataclass(frozen=True)
class GroupLimits:
    """`by`: the field of the payload that names the group of a job, with dots for fields within fields.

    At most `max` jobs of a group start in `duration_ms`, and at most `concurrency` run at the same time; None:
    any number, unless the group has a limit of its own.
    """

    by: str
    max: int | None = None
    duration_ms: int | None = None
    concurrency: int | None = None

    @property
    def given(self) -> dict[str, str | int]:
        """The parameters that are set."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Group:
    """A group of jobs of a queue. None: it has no such limit of its own, that of the workers holds.

    Parameters:
      queue: name of the queue.
      group: name of the group.
      waiting: number of its jobs that are delayed by limits, a pause or a rest, or promoted since. Jobs that no claim
        has met yet are not counted.
      active: number of its running jobs.
      max: maximum number of its jobs that start in `duration_ms`.
      duration_ms: the period of `max`, ms.
      concurrency: maximum number of its jobs that run at the same time.
      is_paused: whether its jobs wait until it is resumed.
      rests_until: when its jobs may start again after a RateLimitError, ms since 1970; None: it does not rest.
    """

    queue: str
    group: str
    waiting: int
    active: int
    max: int | None = None
    duration_ms: int | None = None
    concurrency: int | None = None
    is_paused: bool = False
    rests_until: int | None = None


def group_limits(name: str, value: str) -> GroupLimits:
    """Parses a JSON object with the parameters of GroupLimits. Raises OptionError."""
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        parsed = None
    if not _is_valid(parsed):
        raise expected(name, _EXPECTED, value)
    encodable(f"{name}.by", parsed["by"])
    return GroupLimits(**parsed)


def _is_valid(parsed: Any) -> bool:
    if not isinstance(parsed, dict) or not isinstance(parsed.get("by"), str) or not all(parsed["by"].split(".")):
        return False
    limits = {name: limit for name, limit in parsed.items() if name != "by"}
    if not set(limits) <= {"max", "duration_ms", "concurrency"} or ("max" in limits) != ("duration_ms" in limits):
        return False
    return all(type(limit) is int and limit >= 1 for limit in limits.values())
