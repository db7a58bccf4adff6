"""The pages of what queues have besides jobs: statistics, job schedulers, workers, writes and ledgers."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from spark_bull.core.clock import monotonic_s
from spark_bull.core.errors import DialectError, SparkBullError
from spark_bull.core.model.queues import Scheduler
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.schedule.schedulers import last_due, reading_schedulers
from spark_bull.ops.web import links
from spark_bull.ops.web.access import Authorized
from spark_bull.ops.web.api.activity import existing_write, page_of_writes
from spark_bull.ops.web.middleware import unescaped
from spark_bull.ops.web.page.overview import SHOWN_ROWS, matching
from spark_bull.ops.web.page.queues import TABS, head_of
from spark_bull.ops.web.page.rendering import render
from spark_bull.ops.web.queue_access import READING_S, AllQueues, ExistingQueue, connected_workers, readers_of
from spark_bull.run.slot.status import latest, slots_of

#: Jobs read of each state for statistics, and rows of statistics.
_SAMPLE: Final = 1_000
_NAMES: Final = 100
#: Writes of a page.
_WRITES: Final = 50

router: Final = APIRouter(include_in_schema=False)


def _render(request: Request, queue: BullQueue, tab: str, **context: Any) -> Response:
    return render(
        request,
        f"{tab}.html",
        queue=head_of(queue),
        tabs=TABS,
        tab=tab,
        **context,
    )


def _live(request: Request, queue: BullQueue, tab: str, **context: Any) -> Response:
    return _render(request, queue, tab, events_url=links.events(queue.name), **context)


@router.get("/queues/{queue}/stats")
def show_stats(request: Request, caller: Authorized, queue: ExistingQueue) -> Response:
    """Waiting and run times, and rates, of all jobs and by name. Computed when the page is loaded only."""
    found = queue.stats(sample=_SAMPLE)
    return _render(request, queue, "stats", stats=found[:_NAMES], left=len(found[_NAMES:]), sample=_SAMPLE)


@router.get("/queues/{queue}/schedulers")
def show_schedulers(request: Request, caller: Authorized, queue: ExistingQueue) -> Response:
    """The job schedulers, those that are due first at the beginning."""
    found: list[Scheduler] = []
    refusal = ""
    try:
        found = queue.schedulers()
    except DialectError as error:
        refusal = str(error)
    return _live(request, queue, "schedulers", rows=with_last_due(found), refusal=refusal)


def with_last_due(found: Iterable[Scheduler]) -> list[tuple[Scheduler, int | None]]:
    """Job schedulers, with the time when the job before the next one was due."""
    return [(scheduler, last_due(scheduler)) for scheduler in found]


@router.get("/schedulers")
def show_all_schedulers(
    request: Request,
    caller: Authorized,
    queues: AllQueues,
    match: Annotated[str, Query(max_length=1_000)] = "",
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
) -> Response:
    """The job schedulers of all queues, or of those whose names match; the one that is due first is the first."""
    names = matching(queues, match)
    results = queues.read(reading_schedulers, names, monotonic_s() + READING_S)
    read = [one for one in results if not isinstance(one, SparkBullError)]
    found = sorted(chain.from_iterable(read), key=lambda one: (one.next, one.queue, one.id))
    first = (page - 1) * SHOWN_ROWS
    return render(
        request,
        "all_schedulers.html",
        rows=with_last_due(found[first : first + SHOWN_ROWS]),
        total=len(found),
        unread=len(names) - len(read),
        match=match,
        previous_url=links.schedulers(match=match, page=page - 1) if page > 1 else None,
        next_url=links.schedulers(match=match, page=page + 1) if len(found) > first + SHOWN_ROWS else None,
        events_url="",
    )


@router.get("/queues/{queue}/workers")
def show_workers(request: Request, caller: Authorized, queue: ExistingQueue) -> Response:
    """Connected workers, and the slots of Spark's workers."""
    handle = queue.handle
    names = readers_of(request).of(queue).workers
    slots = [(name, slot) for name in names for slot in latest(slots_of(handle, name))]
    return _live(request, queue, "workers", slots=slots, workers=connected_workers(handle))


@router.get("/queues/{queue}/writes/{write}")
def show_write(request: Request, caller: Authorized, queue: ExistingQueue, write: str) -> Response:
    """One write: how far it is, and what has become of its jobs."""
    return _live(request, queue, "write", write=existing_write(queue, unescaped(write)))


@router.get("/queues/{queue}/writes")
def show_writes(
    request: Request,
    caller: Authorized,
    queue: ExistingQueue,
    start: Annotated[int, Query(ge=0, lt=2**53)] = 0,
) -> Response:
    """The writes of Spark, the newest first, and the ledgers of streaming queries."""
    found, following = page_of_writes(queue, start, _WRITES)
    url = links.tab(queue.name, "writes")
    return _live(
        request,
        queue,
        "writes",
        writes=found,
        previous_url=f"{url}?start={max(start - _WRITES, 0)}" if start else None,
        next_url=None if following is None else f"{url}?start={following}",
        ledgers=readers_of(request).of(queue).ledgers,
    )
