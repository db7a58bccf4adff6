"""The page of all queues: what burns comes first, the numbers of all queues, and the selected ones in an order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import inf
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from spark_bull.core.clock import monotonic_s
from spark_bull.core.errors import PermissionDenied, SparkBullError
from spark_bull.core.model.queues import QueueMetrics
from spark_bull.core.queue.monitor.find import clients_by_queue, is_glob
from spark_bull.ops.web import links
from spark_bull.ops.web.access import Authorized
from spark_bull.ops.web.api.events import MAX_QUEUES
from spark_bull.ops.web.page.history import chart_of_metrics, chart_of_samples, history_of
from spark_bull.ops.web.page.queues import QueueHead, counting_minutes, heading, logical_heads, total_counts
from spark_bull.ops.web.page.rendering import render
from spark_bull.ops.web.queue_access import READING_S, AllQueues, Kept, Queues

#: Queues, or job schedulers of all queues, per page.
SHOWN_ROWS: Final = 50
#: For how long the order of more queues than a page shows is kept, s.
_KEPT_S: Final = 1.0


@dataclass(frozen=True)
class Row:
    """A queue: its head, or why it could not be read. workers: connections of its workers, None: unknown."""

    name: str
    head: QueueHead | None
    error: str
    workers: int | None

    @property
    def failed(self) -> int:
        return self.head.counts.get("failed", 0) if self.head else 0

    @property
    def stalled(self) -> int:
        return self.head.stalled if self.head else 0

    @property
    def since(self) -> float:
        """When its oldest waiting job was added, ms since 1970; infinite without one."""
        return inf if self.head is None or self.head.waiting_since is None else self.head.waiting_since

    @property
    def lacks_workers(self) -> bool:
        """Whether jobs wait, and no worker is connected."""
        return self.workers == 0 and self.since < inf and self.head is not None and not self.head.paused

    @property
    def is_paused(self) -> bool:
        return self.head is not None and self.head.paused


#: The queues that a filter selects, by its name in the address.
FILTERS: Final[Mapping[str, Callable[[Row], object]]] = {
    "failed": lambda row: row.failed,
    "stalled": lambda row: row.stalled,
    "no-workers": lambda row: row.lacks_workers,
    "paused": lambda row: row.is_paused,
    "unreadable": lambda row: row.error,
}


def _urgency(row: Row) -> tuple[object, ...]:
    return not row.error, -row.failed, -row.stalled, row.since, not row.lacks_workers, row.name


def _order(sort: str) -> Callable[[Row], Any]:
    """The order of the rows: by urgency, name, oldest waiting job, workers, or the jobs of a state."""
    given: Mapping[str, Callable[[Row], Any]] = {
        "": _urgency,
        "name": lambda row: row.name,
        "oldest": lambda row: (row.since, row.name),
        "workers": lambda row: (-(row.workers or 0), row.name),
    }
    return given.get(sort, lambda row: (-(row.head.counts.get(sort, 0) if row.head else 0), row.name))


class Overview:
    """The heads of all queues, and the connections of workers, as far as two seconds suffice. Thread-safe."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._names: list[str] = []
        self._heads = Kept[dict[str, QueueHead | SparkBullError]](_KEPT_S)
        self._clients = Kept[Mapping[str, int] | None](_KEPT_S)

    def rows(self) -> list[Row]:
        """The queues; of more than a page shows, the numbers are a second old or, if reading takes long, older."""
        names = self._queues.names()
        if len(names) <= SHOWN_ROWS:
            return self._with_workers(self._read(names))
        if names is not self._names:
            # Queues have come or gone.
            self._names = names
            self._heads.forget()
        return self._with_workers(self._heads.get(lambda: self._read(names)))

    def fresh(self, rows: Sequence[Row]) -> list[Row]:
        """The same queues, read again."""
        return self._with_workers(self._read([row.name for row in rows]))

    def _read(self, names: Sequence[str]) -> dict[str, QueueHead | SparkBullError]:
        return dict(zip(names, self._queues.read(heading, names, monotonic_s() + READING_S), strict=False))

    def _with_workers(self, heads: Mapping[str, QueueHead | SparkBullError]) -> list[Row]:
        clients = self._clients.get(self._read_clients)

        def workers_of(head: QueueHead) -> int | None:
            return None if clients is None or head.client_name is None else clients.get(head.client_name, 0)

        return [
            Row(name, None, str(one), None) if isinstance(one, SparkBullError) else Row(name, one, "", workers_of(one))
            for name, one in heads.items()
        ]

    def _read_clients(self) -> Mapping[str, int] | None:
        try:
            return clients_by_queue(self._queues.connection)
        except PermissionDenied:
            return None


router: Final = APIRouter(include_in_schema=False)


@router.get("/")
def overview(
    request: Request,
    caller: Authorized,
    queues: AllQueues,
    match: Annotated[str, Query(max_length=1_000)] = "",
    only: Annotated[str, Query(max_length=20)] = "",
    sort: Annotated[str, Query(max_length=20)] = "",
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
) -> Response:
    """All queues, or those whose names match and that a filter selects, and the states of their jobs."""
    state: Overview = request.app.state.overview
    found = [row for row in state.rows() if queues.selects(row.name)]
    names = set(matching(queues, match))
    matched = [row for row in found if row.name in names]
    chosen = sorted(filter(FILTERS.get(only), matched), key=_order(sort))
    first = (page - 1) * SHOWN_ROWS
    shown = chosen[first : first + SHOWN_ROWS]
    if len(found) > SHOWN_ROWS:
        shown = state.fresh(shown)
    totals = total_counts(row.head.counts for row in matched if row.head)
    query = {"match": match, "only": only, "sort": sort}
    return render(
        request,
        "overview.html",
        rows=shown,
        problems=_problems(matched),
        oldest=min(matched, key=lambda row: row.since, default=None),
        logical=logical_heads(row.head for row in chosen if row.head),
        states=sorted(totals, key=lambda name: name != "failed"),
        totals=totals,
        matched=len(matched),
        chosen=len(chosen),
        unread=len(queues.names()) - len(found),
        query=query,
        previous_url=links.overview(**query, page=page - 1) if page > 1 else None,
        next_url=links.overview(**query, page=page + 1) if len(chosen) > first + SHOWN_ROWS else None,
        state_chart=chart_of_samples(history_of(request).total(names.__contains__)),
        rate_chart=chart_of_metrics([one for _, minutes in _minutes(queues, shown) for one in minutes]),
        events_url=links.events() if 0 < len(queues.names()) <= MAX_QUEUES else "",
    )


def _problems(rows: Iterable[Row]) -> Mapping[str, tuple[int, int]]:
    """The number of jobs, or of queues, that each filter is about, and the number of queues."""
    selected = {name: [row for row in rows if selects(row)] for name, selects in FILTERS.items()}
    jobs = {name: sum(getattr(row, name) for row in selected[name]) for name in ("failed", "stalled")}
    return {name: (jobs.get(name, len(own)), len(own)) for name, own in selected.items()}


def _minutes(queues: Queues, rows: Sequence[Row]) -> list[tuple[str, list[QueueMetrics]]]:
    """The counters per minute of the queues that can be read."""
    names = [row.name for row in rows]
    found = zip(names, queues.read(counting_minutes, names), strict=True)
    return [(name, one) for name, one in found if not isinstance(one, SparkBullError)]


def matching(queues: Queues, match: str) -> list[str]:
    """The names of the queues that a glob, or a part of a name, selects; sorted."""
    glob = match if is_glob(match) else f"*{match}*"
    return [name for name in queues.names() if fnmatchcase(name, glob)]
