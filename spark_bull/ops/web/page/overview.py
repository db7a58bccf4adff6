"""The page of all queues."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from spark_bull.core.errors import SparkBullError
from spark_bull.core.model.jobs import QueueMetrics
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.monitor.find import is_glob
from spark_bull.core.store.steps import Steps
from spark_bull.ops.web.access import Authorized
from spark_bull.ops.web.api.events import MAX_QUEUES
from spark_bull.ops.web.page import links
from spark_bull.ops.web.page.charts import chart_of_metrics, chart_of_samples
from spark_bull.ops.web.page.history import history_of
from spark_bull.ops.web.page.queues import QueueHead, counting_minutes, heading, logical_heads, total_counts
from spark_bull.ops.web.page.rendering import render
from spark_bull.ops.web.queue_access import AllQueues, Queues

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
