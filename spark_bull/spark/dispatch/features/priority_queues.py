"""Queues of priorities: Bull 1 has no priorities, but its PriorityQueue is a queue for each priority by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark_bull.core.dialects.base import Dialect
from spark_bull.core.dialects.terms import PRIORITY, QueuePriority, priority_number
from spark_bull.core.errors import OptionError
from spark_bull.core.keys import priority_queue
from spark_bull.spark.dispatch.feature import Router, TaskWrite, WriteFeature, WriteRequest
from spark_bull.spark.staging.queue_rows import QueueRows, split

#: The priority of a row without one, if others have one, as in Bull 1.
_DEFAULT = "normal"


@dataclass(frozen=True)
class PriorityQueues(WriteFeature):
    @classmethod
    def planned(cls, request: WriteRequest) -> PriorityQueues | None:
        return cls() if PRIORITY in request.rows.columns or request.options.priority is not None else None

    def router(self, task: TaskWrite) -> Router:
        default = task.defaults.get(PRIORITY)

        def split_named(queue: str, rows: dict[str, list[Any]], numbers: Sequence[int]) -> Iterator[QueueRows]:
            is_named = isinstance(default, str) or any(isinstance(value, str) for value in rows.get(PRIORITY, ()))
            if is_named and task.handle(queue).dialect.has("priority-queues"):
                yield from _by_priority(queue, rows, default, numbers)
            else:
                yield queue, rows, numbers

        return split_named


def named_default(dialect: Dialect, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults as jobs in the queue of a priority have them."""
    name = defaults.get(PRIORITY)
    is_queue = isinstance(name, str) and dialect.has("priority-queues")
    return {**defaults, PRIORITY: QueuePriority(name)} if is_queue else {**defaults}


def _by_priority(
    queue: str, rows: Mapping[str, Sequence[Any]], default: str | None, numbers: Sequence[int]
) -> Iterator[QueueRows]:
    """Splits rows by the names of their priorities. Raises OptionError for an unknown name."""
    names = [name or default or _DEFAULT for name in rows.get(PRIORITY) or [None] * len(numbers)]
    for name, number in zip(names, numbers, strict=True):
        try:
            priority_number(name)
        except OptionError as error:
            raise OptionError(f"row {number}: {error}") from None
    for name, some, own in split(rows, names, numbers):
        some[PRIORITY] = [QueuePriority(name)] * len(own)
        yield priority_queue(queue, name), some, own
