"""The queue of a page: opened for a request, and its head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from spark_bull.queue.bull_queue import BullQueue
from spark_bull.queue.monitor.activity import waiting_since
from spark_bull.queue.monitor.find import describe

TABS: Final = (
    ("jobs", "Jobs"),
    ("schedules", "Schedules"),
    ("workers", "Workers"),
    ("writes", "Writes and ledgers"),
)
#: States whose jobs can't be removed together.
_KEPT: Final = ("active", "waiting-children")


@dataclass(frozen=True)
class QueueHead:
    """What the head of a page shows of a queue, and the actions that it offers."""

    name: str
    protocol: str
    paused: bool
    intake_open: bool
    counts: Mapping[str, int]
    waiting_since: int | None
    retried_states: tuple[str, ...]
    cleaned_states: tuple[str, ...]


def head_of(queue: BullQueue) -> QueueHead:
    summary, counts = describe(queue.handle), queue.counts()
    return QueueHead(
        queue.name,
        queue.protocol,
        summary.paused,
        summary.intake_open,
        counts,
        waiting_since(queue.handle),
        tuple(queue.handle.dialect.retryable_states),
        tuple(state for state in counts if state not in _KEPT),
    )
