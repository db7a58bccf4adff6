"""Priorities by name, those of Kue and of the PriorityQueue of Bull 1."""

from __future__ import annotations

from typing import Final

from spark_bull.core.errors import OptionError, did_you_mean, expected

PRIORITY: Final = "priority"
#: Name -> number, of which 1 is the highest.
PRIORITIES: Final = {"critical": 1, "high": 2, "medium": 3, "normal": 4, "low": 5}
_LARGEST: Final = 2**53 - 1


class QueuePriority(str):
    """The name of a priority whose job is added to the queue of that priority; see `keys.priority_queue`."""


def priority_number(priority: object, highest: int | None = None) -> int:
    """The number of a priority that is a number or a name. Raises OptionError for another value.

    highest: the largest number that is allowed, None: the largest integer that JavaScript has.
    """
    if isinstance(priority, str) and priority in PRIORITIES:
        return PRIORITIES[priority]
    if isinstance(priority, int) and not isinstance(priority, bool) and 0 <= priority <= (highest or _LARGEST):
        return priority
    numbers = "an integer >= 0" if highest is None else f"an integer from 0 to {highest:,}"
    hint = did_you_mean(priority, PRIORITIES) if isinstance(priority, str) else ""
    raise OptionError(f"{expected(PRIORITY, f'{numbers}, or one of {listed()}', priority)}{hint}")


def listed() -> str:
    """The names, the highest first."""
    return ", ".join(PRIORITIES)
