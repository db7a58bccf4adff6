"""The order in which a slot asks its queues for jobs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, Generic, Protocol, TypeVar

#: Chunks that a slot claims of one queue with a weight, while it has jobs, before it draws again.
TURN: Final = 4


class Weighted(Protocol):
    """What has a weight; 0: none."""

    @property
    def weight(self) -> int: ...


W = TypeVar("W", bound=Weighted)


def in_order(queues: Sequence[W]) -> Sequence[W]:
    """The queues as they are listed, or in random order: the first one is drawn in proportion to the weights.

    Formula: Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006.
    """
    if not any(queue.weight for queue in queues):
        return queues
    return sorted(queues, key=lambda queue: random.random() ** (1 / max(1, queue.weight)), reverse=True)


class Turns(Generic[W]):
    """The order for a slot that processes chunks: it stays with a queue that has a weight for TURN chunks.

    A script settles a chunk and claims the next one of the same queue; for another queue, two are needed.
    """

    def __init__(self, queues: Sequence[W]) -> None:
        self._queues = queues
        self._last: W | None = None
        self._left = 0

    def order(self) -> Sequence[W]:
        """The queues in the order in which they are asked now."""
        last = self._last
        if last is None or not self._left:
            return in_order(self._queues)
        return [last, *(queue for queue in in_order(self._queues) if queue is not last)]

    def claimed(self, queue: W) -> None:
        """A chunk of this queue was claimed."""
        if not queue.weight:
            return
        self._left = (self._left if queue is self._last and self._left else TURN) - 1
        self._last = queue
