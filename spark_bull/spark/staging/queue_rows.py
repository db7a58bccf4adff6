"""Splits the rows of a batch by queue."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

from spark_bull.errors import OptionError

#: Name of the option and the column that name a queue.
QUEUE: Final = "queue"
#: Name of a queue, the values of its rows by column, and their numbers.
QueueRows: TypeAlias = tuple[str, dict[str, list[Any]], Sequence[int]]


def by_queue(rows: dict[str, list[Any]], queue: str, numbers: Sequence[int]) -> Iterator[QueueRows]:
    """Splits rows, given by column, by their column `queue`, if they have one.

    queue: the queue of rows without such a column. numbers: those of the rows, for errors. Raises OptionError.
    """
    queues = rows.pop(QUEUE, None)
    if queues is None:
        yield queue, rows, numbers
        return
    members: dict[str, list[int]] = defaultdict(list)
    for position, name in enumerate(queues):
        if not name:
            raise OptionError(f"row {numbers[position]}: expected `queue` to name a queue, got {name!r}")
        members[name].append(position)
    for name, positions in members.items():
        queue_rows = {column: [values[i] for i in positions] for column, values in rows.items()}
        yield name, queue_rows, [numbers[i] for i in positions]
