"""The page of all queues."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from spark_bull.model.jobs import STATES
from spark_bull.queue.monitor.find import is_glob
from spark_bull.web.access import Authorized
from spark_bull.web.api.events import MAX_QUEUES
from spark_bull.web.page import links
from spark_bull.web.page.charts import chart_of_metrics, chart_of_samples
from spark_bull.web.page.history import history_of
from spark_bull.web.page.metrics import metrics_of
from spark_bull.web.page.queues import head_of
from spark_bull.web.page.rendering import render
from spark_bull.web.page.route import PageRoute
from spark_bull.web.queue_access import AllQueues

#: Queues per page.
_SHOWN: Final = 50

router: Final = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/")
def overview(
    request: Request,
    caller: Authorized,
    queues: AllQueues,
    match: Annotated[str, Query(max_length=1_000)] = "",
    after: Annotated[str, Query(max_length=1_000)] = "",
) -> Response:
    """All queues, or those whose names match, and the states of their jobs."""
    glob = match if is_glob(match) else f"*{match}*"
    names = [name for name in queues.names() if fnmatchcase(name, glob)]
    shown = [name for name in names if name > after][:_SHOWN]
    opened = [queues.open(name) for name in shown]
    heads = [head_of(queue) for queue in opened]
    return render(
        request,
        "overview.html",
        queues=heads,
        states=[state for state in STATES if any(state in head.counts for head in heads)],
        total=len(names),
        match=match,
        next_url=links.overview(match=match, after=shown[-1]) if shown and shown[-1] != names[-1] else None,
        state_chart=chart_of_samples(history_of(request).total()),
        rate_chart=chart_of_metrics([found for queue in opened for found in metrics_of(queue)]),
        events_url=links.events() if 0 < len(queues.names()) <= MAX_QUEUES else "",
    )
