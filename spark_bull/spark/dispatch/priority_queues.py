"""Queues of priorities: Bull 1 has no priorities, but its PriorityQueue is a queue for each priority by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spark_bull.core.dialects.priorities import PRIORITY, QueuePriority, priority_number
from spark_bull.core.errors import OptionError
from spark_bull.core.keys import priority_queue
from spark_bull.spark.staging.queue_rows import QueueRows, split

#: The priority of a row without one, if others have one, as in Bull 1.
_DEFAULT = "normal"


def are_named(rows: Mapping[str, Sequence[Any]], defaults: Mapping[str, Any]) -> bool:
    """Whether rows have priorities by name."""
    return isinstance(defaults.get(PRIORITY), str) or any(isinstance(value, str) for value in rows.get(PRIORITY, ()))


def by_priority(
    queue: str, rows: Mapping[str, Sequence[Any]], default: str | None, numbers: Sequence[int]
) -> Iterator[QueueRows]:
    """Splits rows with priorities by name: the queue of each priority, its rows, and their numbers.

    Raises OptionError for an unknown name.
    """
    names = [name or default or _DEFAULT for name in rows.get(PRIORITY) or [None] * len(numbers)]
    for name, number in zip(names, numbers, strict=True):
        try:
            priority_number(name)
        except OptionError as error:
            raise OptionError(f"row {number}: {error}") from None
    for name, some, own in split(rows, names, numbers):
        some[PRIORITY] = [QueuePriority(name)] * len(own)
        yield priority_queue(queue, name), some, own
