"""Queues of priorities: Bull 1 has no priorities, but its PriorityQueue is a queue for each priority by name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spark_bull.dialects.priorities import NAME, QueuePriority, number_of
from spark_bull.errors import OptionError
from spark_bull.keys import priority_queue

#: The priority of a row without one, if others have one, as in Bull 1.
_DEFAULT = "normal"


def are_named(rows: Mapping[str, Sequence[Any]], defaults: Mapping[str, Any]) -> bool:
    """Whether rows have priorities by name."""
    return isinstance(defaults.get(NAME), str) or any(isinstance(value, str) for value in rows.get(NAME, ()))


def by_priority(
    queue: str, rows: Mapping[str, Sequence[Any]], default: str | None, numbers: Sequence[int]
) -> Iterator[tuple[str, dict[str, list[Any]], Sequence[int]]]:
    """Splits rows with priorities by name: the queue of each priority, its rows, and their numbers.

    Raises OptionError for an unknown name.
    """
    members: dict[str, list[int]] = defaultdict(list)
    for position, given in enumerate(rows.get(NAME) or [None] * len(numbers)):
        name = given or default or _DEFAULT
        try:
            number_of(name)
        except OptionError as error:
            raise OptionError(f"row {numbers[position]}: {error}") from None
        members[name].append(position)
    for name, positions in members.items():
        some = {column: [values[i] for i in positions] for column, values in rows.items()}
        some[NAME] = [QueuePriority(name)] * len(positions)
        yield priority_queue(queue, name), some, [numbers[i] for i in positions]
