"""Splits the rows of a batch by queue."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from spark_bull.core.errors import OptionError

#: Name of the option and the column that name a queue.
QUEUE: Final = "queue"
#: Name of a queue, the values of its rows by column, and their numbers.
QueueRows: TypeAlias = tuple[str, dict[str, list[Any]], Sequence[int]]


def by_queue(rows: dict[str, list[Any]], queue: str | None, numbers: Sequence[int]) -> Iterator[QueueRows]:
    """Splits rows, given by column, by their column `queue`, if they have one.

    queue: the queue of rows without such a column; None: they have one. numbers: row numbers, for errors. Raises
    OptionError.
    """
    queues = rows.pop(QUEUE, None)
    if queues is None:
        assert queue is not None
        yield queue, rows, numbers
        return
    for name, number in zip(queues, numbers, strict=True):
        if not name:
            raise OptionError(f"row {number}: expected `queue` to name a queue, got {name!r}")
    yield from split(rows, queues, numbers)


def split(rows: Mapping[str, Sequence[Any]], names: Sequence[str], numbers: Sequence[int]) -> Iterator[QueueRows]:
    """Splits rows by names, one for each."""
    members: dict[str, list[int]] = defaultdict(list)
    for position, name in enumerate(names):
        members[name].append(position)
    for name, positions in members.items():
        some = {column: [values[i] for i in positions] for column, values in rows.items()}
        yield name, some, [numbers[i] for i in positions]
