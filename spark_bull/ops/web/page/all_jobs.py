"""The page of the jobs of a state in all queues."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from spark_bull.core.clock import monotonic_s
from spark_bull.core.errors import SparkBullError
from spark_bull.core.model.jobs import STATES
from spark_bull.core.queue.jobs.portions import JobFilter
from spark_bull.core.queue.jobs.read import counting
from spark_bull.ops.web.access import Authorized
from spark_bull.ops.web.api.events import MAX_QUEUES
from spark_bull.ops.web.api.jobs import Wanted, jobs_of_queues
from spark_bull.ops.web.cursors import cursor_of
from spark_bull.ops.web.page import links
from spark_bull.ops.web.page.jobs import SHOWN, time_label
from spark_bull.ops.web.page.overview import matching
from spark_bull.ops.web.page.queues import total_counts
from spark_bull.ops.web.page.rendering import render
from spark_bull.ops.web.problems import Problem
from spark_bull.ops.web.queue_access import READING_S, AllQueues

router: Final = APIRouter(include_in_schema=False)


@router.get("/jobs")
def show_jobs(
    request: Request,
    caller: Authorized,
    queues: AllQueues,
    state: Annotated[str, Query()] = "failed",
    match: Annotated[str, Query(max_length=1_000)] = "",
    cursor: Annotated[str, Query(max_length=30_000)] = "",
) -> Response:
    """The jobs of a state in all queues, or in those whose names match, queue by queue."""
    if state not in STATES:
        raise Problem(400, f"expected `state` to be one of {', '.join(STATES)}, got: {state[:100]!r}", field="state")
    names = matching(queues, match)
    counts = dict(zip(names, queues.read(counting, names, monotonic_s() + READING_S), strict=False))
    readable = {name: found for name, found in counts.items() if not isinstance(found, SparkBullError)}
    # Queues that could not be counted in time may have some, too.
    having = [name for name in names if name not in counts or readable.get(name, {}).get(state)]
    query = {"state": state, "match": match}
    wanted = Wanted(query, [state], JobFilter(), True, SHOWN, cursor or None)
    jobs, following = jobs_of_queues(queues, having, wanted)
    return render(
        request,
        "all_jobs.html",
        state=state,
        match=match,
        totals=total_counts(readable.values()),
        unreadable=len(counts) - len(readable),
        jobs=jobs,
        time_label=time_label(state),
        is_later=bool(cursor),
        first_url=links.jobs(**query),
        next_url=links.jobs(**query, cursor=cursor_of(following, query)) if following else None,
        events_url=links.events() if 0 < len(queues.names()) <= MAX_QUEUES else "",
    )
