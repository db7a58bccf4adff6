"""The page of all queues, and the queue of a page: opened for a request, and its head."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from spark_bull.core.errors import SparkBullError
from spark_bull.core.keys import logical_queue
from spark_bull.core.model.jobs import STATES
from spark_bull.core.model.queues import QueueMetrics
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.jobs.read import counting
from spark_bull.core.queue.monitor.activity import COUNTED_STATES, reading_metrics, waiting_since
from spark_bull.core.queue.monitor.find import describing, is_glob
from spark_bull.core.store.steps import Steps, run
from spark_bull.ops.web.access import Authorized
from spark_bull.ops.web.api.events import MAX_QUEUES
from spark_bull.ops.web.page import links
from spark_bull.ops.web.page.history import MINUTES, chart_of_metrics, chart_of_samples, history_of
from spark_bull.ops.web.page.rendering import render
from spark_bull.ops.web.queue_access import AllQueues, Queues

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
    """What the head of a page shows of a queue, and the actions that it offers."""

    name: str
    protocol: str
    paused: bool
    pause_reason: str | None
    intake_open: bool
    counts: Mapping[str, int]
    waiting_since: int | None
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


def heading(handle: QueueHandle) -> Steps[QueueHead]:
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
        (yield from waiting_since(handle)),
        tuple(handle.dialect.retryable_states),
        tuple(state for state in counts if state not in _KEPT),
        handle.dialect.has("queue-limits"),
    )


def counting_minutes(handle: QueueHandle) -> Steps[list[QueueMetrics]]:
    """The steps that read the counters per minute of a chart; none in a dialect that keeps none."""
    found = []
    for state in COUNTED_STATES if handle.dialect.has("metrics") else ():
        found.append((yield from reading_metrics(handle, state, 0, MINUTES)))
    return found


#: Queues per page.
_SHOWN: Final = 50

router: Final = APIRouter(include_in_schema=False)


@router.get("/")
def overview(
    request: Request,
    caller: Authorized,
    queues: AllQueues,
    match: Annotated[str, Query(max_length=1_000)] = "",
    after: Annotated[str, Query(max_length=1_000)] = "",
) -> Response:
    """All queues, or those whose names match, and the states of their jobs."""
    names = matching(queues, match)
    shown = [name for name in names if name > after][:_SHOWN]
    found = dict(zip(shown, queues.read(_overview, shown), strict=True))
    readable = [one for one in found.values() if not isinstance(one, SparkBullError)]
    totals = total_counts(head.counts for head, _ in readable)
    return render(
        request,
        "overview.html",
        queues={name: str(one) if isinstance(one, SparkBullError) else one[0] for name, one in found.items()},
        logical=logical_heads(head for head, _ in readable),
        states=list(totals),
        totals=totals,
        total=len(names),
        match=match,
        next_url=links.overview(match=match, after=shown[-1]) if shown and shown[-1] != names[-1] else None,
        state_chart=chart_of_samples(history_of(request).total()),
        rate_chart=chart_of_metrics([one for _, minutes in readable for one in minutes]),
        events_url=links.events() if 0 < len(queues.names()) <= MAX_QUEUES else "",
    )


def matching(queues: Queues, match: str) -> list[str]:
    """The names of the queues that a glob, or a part of a name, selects; sorted."""
    glob = match if is_glob(match) else f"*{match}*"
    return [name for name in queues.names() if fnmatchcase(name, glob)]


def _overview(handle: QueueHandle) -> Steps[tuple[QueueHead, list[QueueMetrics]]]:
    return (yield from heading(handle)), (yield from counting_minutes(handle))
