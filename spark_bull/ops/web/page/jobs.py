"""The jobs by state: the page of a queue, and the page of all queues."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from spark_bull.core.clock import moment_of, monotonic_s, ms_of
from spark_bull.core.errors import SparkBullError
from spark_bull.core.model.jobs import STATES
from spark_bull.core.model.read_jobs import Job
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.jobs.portions import JobFilter, read_portion
from spark_bull.core.queue.jobs.read import counting
from spark_bull.core.store.round_trips import run
from spark_bull.ops.web import links
from spark_bull.ops.web.access import Authorized
from spark_bull.ops.web.api.events import MAX_QUEUES
from spark_bull.ops.web.api.jobs import Wanted, jobs_of_queues
from spark_bull.ops.web.cursors import Position, cursor_of, position_of
from spark_bull.ops.web.page.history import chart_of_metrics, chart_of_samples, history_of
from spark_bull.ops.web.page.overview import matching
from spark_bull.ops.web.page.queues import TABS, QueueHead, counting_minutes, head_of, total_counts
from spark_bull.ops.web.page.rendering import render
from spark_bull.ops.web.problems import Problem
from spark_bull.ops.web.queue_access import READING_S, AllQueues, ExistingQueue

#: Jobs per page.
SHOWN: Final = 25
#: What makes jobs of a state, for an empty list.
_ADVICE: Final = {
    "wait": "All jobs that were added have started. Add one with `spark-bull add`, from Spark or from Node.",
    "active": "No worker processes a job of this queue right now.",
    "delayed": "A job with `delay`, or a failed one that is tried again later, waits here.",
    "prioritized": "Jobs with `priority` wait here.",
    "paused": "Jobs wait here while the queue is paused.",
    "waiting-children": "A job waits here until its children have ended.",
    "completed": "Jobs stay here when they have completed, unless `removeOnComplete` says otherwise.",
    "failed": "Nothing has failed.",
}
_NO_RATES: Final = "Workers count jobs per minute with the option `metrics`; none has counted any yet."
_NO_COUNTERS: Final = "Workers of this dialect count no jobs per minute."

router: Final = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class Search:
    """The jobs that are looked for. since, until: ms since 1970, of when jobs were added."""

    state: str
    id: str = ""
    name: str = ""
    text: str = ""
    reason: str = ""
    since: int | None = None
    until: int | None = None
    order: str = "desc"

    @property
    def is_narrow(self) -> bool:
        return bool(self.id) or not self.filter.is_empty

    @property
    def filter(self) -> JobFilter:
        """The conditions without the id."""
        return JobFilter(self.name or None, self.text or None, self.since, self.until, self.reason or None)


def time_label(state: str) -> str:
    """What the time of a job in a list is, see `time_of`."""
    return {"delayed": "Due", "completed": "Completed", "failed": "Failed"}.get(state, "Added")


@router.get("/queues/{queue}")
def show_queue(
    request: Request,
    caller: Authorized,
    queue: ExistingQueue,
    state: Annotated[str, Query()] = "",
    id: Annotated[str, Query(max_length=1_000)] = "",
    name: Annotated[str, Query(max_length=1_000)] = "",
    text: Annotated[str, Query(max_length=1_000)] = "",
    reason: Annotated[str, Query(max_length=1_000)] = "",
    since: Annotated[str, Query(alias="from")] = "",
    until: Annotated[str, Query(alias="to")] = "",
    order: Annotated[str, Query(pattern="^(asc|desc)$")] = "desc",
    cursor: Annotated[str, Query(max_length=30_000)] = "",
) -> Response:
    """The jobs of a state, in portions."""
    head = head_of(queue)
    search = Search(
        state or _first_state(head),
        id.strip(),
        name.strip(),
        text,
        reason,
        time_of_input("from", since),
        time_of_input("to", until),
        order,
    )
    jobs, following = _found(queue, search, cursor)
    chosen = {"state": search.state, "name": search.name, "text": text, "reason": reason, "from": since, "to": until}
    query = {**chosen, "id": id, "order": order}
    return render(
        request,
        "jobs.html",
        queue=head,
        tabs=TABS,
        tab="jobs",
        search=search,
        chosen=chosen,
        jobs=jobs,
        time_label=time_label(search.state),
        orders=(("desc", "newest first"), ("asc", "oldest first")),
        empty_advice=_ADVICE.get(search.state, ""),
        is_later=bool(cursor),
        first_url=links.queue(queue.name, **query),
        next_url=links.queue(queue.name, **query, cursor=following) if following else None,
        state_chart=chart_of_samples(history_of(request).of(queue.name)),
        rate_chart=chart_of_metrics(run(queue.handle.connection, counting_minutes(queue.handle))),
        no_rates=_NO_RATES if queue.handle.dialect.has("metrics") else _NO_COUNTERS,
        events_url=links.events(queue.name),
    )


def _first_state(head: QueueHead) -> str:
    """The state shown first: one that has jobs, if there is one."""
    order = ("failed", "active", "wait", "prioritized", "delayed", "waiting-children", "paused", "completed")
    return next((state for state in order if head.counts.get(state)), "wait")


def time_of_input(name: str, text: str) -> int | None:
    """Parses the value of an input of the type datetime-local, in UTC; ms since 1970."""
    if not text:
        return None
    try:
        return ms_of(moment_of(text))
    except ValueError:
        raise Problem(400, f"expected `{name}` to be a time such as 2026-01-31T08:00, got: {text[:100]!r}") from None


def _found(queue: BullQueue, search: Search, cursor: str) -> tuple[list[Job], str | None]:
    """A page of jobs, and the cursor of the next one. Raises Problem 400 for a wrong cursor."""
    if search.id:
        job = queue.job(search.id)
        return [job] if job else [], None
    query = asdict(search)
    place = position_of(cursor, query).place if cursor else None
    newest = search.order == "desc"
    found = read_portion(queue.handle, [search.state], place, SHOWN, wanted=search.filter, descending=newest)
    return found.jobs, cursor_of(Position(queue.name, found.next), query) if found.next else None


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
