"""The order in which a slot asks its queues for jobs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol, TypeVar


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
