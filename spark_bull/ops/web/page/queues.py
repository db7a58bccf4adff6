"""What pages show of a queue in their head, and of several queues together."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from spark_bull.core.keys import logical_queue
from spark_bull.core.model.jobs import STATES
from spark_bull.core.model.queues import QueueMetrics
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.jobs.read import counting
from spark_bull.core.queue.monitor.activity import COUNTED_STATES, counting_unlocked, reading_metrics, waiting_since
from spark_bull.core.queue.monitor.find import describing
from spark_bull.core.store.round_trips import RoundTrips, run
from spark_bull.ops.web.page.history import MINUTES

TABS: Final = (
    ("jobs", "Jobs"),
    ("stats", "Statistics"),
    ("schedulers", "Job schedulers"),
    ("workers", "Workers"),
    ("writes", "Writes and ledgers"),
)
#: States whose jobs can't be removed together.
_KEPT: Final = ("active", "waiting-children")


@dataclass(frozen=True)
class QueueHead:
    """What the head of a page shows of a queue, and the actions that it offers.

    stalled: active jobs without a lock. client_name: of the connections of its workers, None where they have no names.
    """

    name: str
    protocol: str
    paused: bool
    pause_reason: str | None
    intake_open: bool
    counts: Mapping[str, int]
    stalled: int
    waiting_since: int | None
    client_name: str | None
    retried_states: tuple[str, ...]
    cleaned_states: tuple[str, ...]
    has_limits: bool


def total_counts(found: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    """The number of jobs by state over several queues, in the order of the states; only states that a queue has."""
    sums: Counter[str] = Counter()
    for counts in found:
        sums.update(counts)
    return {state: sums[state] for state in STATES if state in sums}


@dataclass(frozen=True)
class LogicalHead:
    """What the page of all queues shows of the shards of one queue together."""

    name: str
    shards: int
    counts: Mapping[str, int]
    waiting_since: int | None


def logical_heads(heads: Iterable[QueueHead]) -> dict[str, LogicalHead]:
    """The sums of queues that look like the shards of one, by the name of the first shard among them."""
    parts: dict[str, list[QueueHead]] = defaultdict(list)
    for head in heads:
        if logical := logical_queue(head.name):
            parts[logical].append(head)
    return {own[0].name: _sum_of(logical, own) for logical, own in parts.items() if len(own) > 1}


def _sum_of(name: str, heads: Sequence[QueueHead]) -> LogicalHead:
    since = [head.waiting_since for head in heads if head.waiting_since is not None]
    return LogicalHead(name, len(heads), Counter(total_counts(head.counts for head in heads)), min(since, default=None))


def head_of(queue: BullQueue) -> QueueHead:
    return run(queue.handle.connection, heading(queue.handle))


def heading(handle: QueueHandle) -> RoundTrips[QueueHead]:
    """The steps of `head_of`."""
    summary = yield from describing(handle)
    counts = yield from counting(handle)
    return QueueHead(
        handle.keys.queue,
        handle.dialect.name,
        summary.paused,
        summary.pause_reason,
        summary.intake_open,
        counts,
        (yield from counting_unlocked(handle)) if counts.get("active") else 0,
        (yield from waiting_since(handle)),
        handle.keys.client_name if handle.dialect.has("client-names") else None,
        tuple(handle.dialect.retryable_states),
        tuple(state for state in counts if state not in _KEPT),
        handle.dialect.has("queue-limits"),
    )


def counting_minutes(handle: QueueHandle) -> RoundTrips[list[QueueMetrics]]:
    """The steps that read the counters per minute of a chart; none in a dialect that keeps none."""
    found = []
    for state in COUNTED_STATES if handle.dialect.has("metrics") else ():
        found.append((yield from reading_metrics(handle, state, 0, MINUTES)))
    return found
