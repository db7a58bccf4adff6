"""Limits of groups of jobs: how many jobs of one group may run at the same time, and start in a period."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Final

from spark_bull.errors import encodable, expected

_EXPECTED: Final = (
    'an object such as {"by": "tenant", "max": 5, "duration_ms": 1000, "concurrency": 2}: `by` is a field of the '
    "payload, the numbers are positive integers, and `max` and `duration_ms`, or `concurrency`, may be left out"
)


@dataclass(frozen=True)
class GroupLimits:
    """`by`: the field of the payload that names the group of a job, with dots for fields within fields.

    At most `max` jobs of a group start in `duration_ms`, and at most `concurrency` run at the same time; None:
    any number.
    """

    by: str
    max: int | None = None
    duration_ms: int | None = None
    concurrency: int | None = None

    @property
    def given(self) -> dict[str, str | int]:
        """The parameters that are set."""
        return {name: value for name, value in asdict(self).items() if value is not None}


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
    if set(limits) not in ({"concurrency"}, {"max", "duration_ms"}, {"max", "duration_ms", "concurrency"}):
        return False
    return all(type(limit) is int and limit >= 1 for limit in limits.values())
