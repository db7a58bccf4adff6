"""Queues: list, details, statistics, and what holds for a whole queue: pause, resume, intake, drain, clean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Depends, Query, Request

from spark_bull.core.errors import SparkBullError
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.jobs.read import counting
from spark_bull.core.queue.monitor.activity import QueueFilter, activity, selecting
from spark_bull.core.queue.monitor.find import describing
from spark_bull.core.queue.monitor.stats import computing
from spark_bull.core.store.round_trips import RoundTrips, run
from spark_bull.ops.web import documents
from spark_bull.ops.web.cursors import Position, cursor_of, position_of
from spark_bull.ops.web.problems import Problem
from spark_bull.ops.web.queue_access import AllQueues, ExistingQueue, QueuePart
from spark_bull.ops.web.shown import Json, document

router = APIRouter(tags=["queues"])

Found = TypeVar("Found")

Window = Annotated[int, Query(ge=1_000, le=30 * 86_400_000, description="period of rates and ended jobs, ms")]
Sample = Annotated[int, Query(ge=1, le=10_000, description="maximum number of jobs read of each state")]
Limit = Annotated[int, Query(ge=1, le=1_000, description="maximum number of queues")]
Cursor = Annotated[
    str | None, Query(max_length=2_000, description="`next` of the page before, with the same parameters")
]


def _filter(
    minLength: Annotated[int | None, Query(ge=0, description="least number of jobs not active and not ended")] = None,
    maxLength: Annotated[int | None, Query(ge=0, description="greatest number of these jobs")] = None,
    minAddedPerSecond: Annotated[float | None, Query(ge=0, description="jobs added, in the last minute")] = None,
    minFinishedPerSecond: Annotated[float | None, Query(ge=0, description="jobs ended, in the last minute")] = None,
    minIdleMs: Annotated[int | None, Query(ge=0, description="for how long nothing has happened, ms")] = None,
) -> QueueFilter:
    """Dependency: which queues are listed. Raises OptionError, which is answered by 400."""
    return QueueFilter(minLength, maxLength, minAddedPerSecond, minFinishedPerSecond, minIdleMs)


def _first(request: Request, cursor: str | None) -> str:
    """The queue with which a page begins. Raises Problem 400."""
    return position_of(cursor, _query(request)).queue if cursor else ""


def _page(request: Request, part: QueuePart[Any]) -> dict[str, Any]:
    """What a page of queues says of itself."""
    following = None if part.next is None else cursor_of(Position(part.next), _query(request))
    return {"next": following, "partial": part.is_partial}


def _or_errors(part: QueuePart[Found]) -> list[Found | dict[str, Any]]:
    """What was read of each queue, or why it could not be read."""
    return [
        {"queue": name, "error": str(found)} if isinstance(found, SparkBullError) else found
        for name, found in part.found.items()
    ]


def _query(request: Request) -> dict[str, str]:
    """The parameters that a cursor is valid for."""
    others = {name: value for name, value in request.query_params.items() if name not in ("limit", "cursor")}
    return {"path": request.url.path, **others}


@router.get("/queues", response_model=documents.QueueList)
def list_queues(
    request: Request,
    queues: AllQueues,
    wanted: Annotated[QueueFilter, Depends(_filter)],
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Json:
    """Lists queues with their numbers of jobs. A new queue appears after 15 s, or longer.

    A page ends after about 2 s, also with fewer queues than asked for: go on until `next` is null. With filters, a page
    has the fitting ones of the next `limit` queues.
    """

    def summary_if_selected(handle: QueueHandle) -> RoundTrips[dict[str, Any] | None]:
        return (yield from _summary(handle)) if (yield from selecting(handle, wanted)) else None

    part = queues.read_some(summary_if_selected, _first(request, cursor), limit)
    return Json({"queues": [one for one in _or_errors(part) if one is not None], **_page(request, part)})


@router.get("/queues/{queue}", response_model=documents.QueueDetails)
def read_queue(queue: ExistingQueue) -> Json:
    """Reads one queue, with its limits and activity."""
    dialect = queue.handle.dialect
    features = {
        "events": dialect.has("event-stream"),
        "flows": dialect.has("flows"),
        "priorities": dialect.has("priorities"),
        "limits": dialect.has("queue-limits"),
        "schedulers": dialect.has("schedulers"),
        "retryableStates": list(dialect.retryable_states),
    }
    limits = document(queue.limits()) if dialect.has("queue-limits") else None
    busy = document(activity(queue.handle))
    summary = run(queue.handle.connection, _summary(queue.handle))
    return Json({**summary, "features": features, "limits": limits, **busy})


@router.get("/stats", response_model=documents.StatsPage)
def read_stats(
    request: Request,
    queues: AllQueues,
    windowMs: Window = 3_600_000,
    sample: Sample = 1_000,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Json:
    """Computes the statistics of queues, without those by name.

    A page ends after about 2 s, also with fewer queues than asked for: go on until `next` is null.
    """

    def of_all_jobs(handle: QueueHandle) -> RoundTrips[dict[str, Any]]:
        found, *_ = yield from computing(handle, windowMs, sample)
        return document(found)  # type: ignore[no-any-return]

    part = queues.read_some(of_all_jobs, _first(request, cursor), limit)
    return Json({"stats": _or_errors(part), **_page(request, part)})


@router.get("/queues/{queue}/stats", response_model=documents.StatsList)
def read_queue_stats(queue: ExistingQueue, windowMs: Window = 3_600_000, sample: Sample = 10_000) -> Json:
    """Computes the statistics of a queue, and of the jobs of each name."""
    return Json({"stats": document(queue.stats(window_ms=windowMs, sample=sample))})


@router.get("/queues/{queue}/metrics", response_model=documents.MetricsDocument)
def read_metrics(
    queue: ExistingQueue,
    state: Literal["completed", "failed"] = "completed",
    minutes: Annotated[int, Query(ge=1, le=20_160, description="maximum number of minutes")] = 60,
) -> Json:
    """Reads how many jobs have ended per minute, as far as workers keep metrics."""
    return Json(document(queue.metrics(state, 0, minutes - 1)))


def _add_verb(name: str, method: str, path: str, verb: Callable[[BullQueue], None], description: str) -> None:
    """Adds an operation that calls a method of the queue."""

    def run(queue: ExistingQueue) -> None:
        verb(queue)

    path = f"/queues/{{queue}}/{path}"
    router.add_api_route(path, run, methods=[method], status_code=204, name=name, description=description)


_add_verb(
    "pause_queue", "POST", "pause", BullQueue.pause, "Keeps workers from claiming more jobs; active jobs continue."
)
_add_verb("resume_queue", "POST", "resume", BullQueue.resume, "Lets workers claim jobs again.")
_add_verb(
    "close_intake", "POST", "close-intake", BullQueue.close_intake, "Lets the queue accept no more jobs of spark_bull."
)
_add_verb("open_intake", "POST", "open-intake", BullQueue.open_intake, "Lets the queue accept jobs again.")
_add_verb("remove_limits", "DELETE", "limits", BullQueue.remove_limits, "Removes the limits of the queue (BullMQ).")


@router.post("/queues/{queue}/clean")
def clean_queue(queue: ExistingQueue, wanted: documents.CleanDocument) -> documents.DoneDocument:
    """Removes old jobs of a state, at most `limit`."""
    removed = queue.clean(wanted.grace_ms, wanted.limit, wanted.state)
    return documents.DoneDocument(jobs=len(removed), more=len(removed) == wanted.limit)


@router.post("/queues/{queue}/drain")
def drain_queue(queue: ExistingQueue, wanted: documents.DrainDocument | None = None) -> documents.DoneDocument:
    """Removes all jobs that wait for a worker."""
    return documents.DoneDocument(jobs=queue.drain(delayed=wanted is not None and wanted.delayed))


@router.post("/queues/{queue}/trim-events")
def trim_events(queue: ExistingQueue, wanted: documents.TrimDocument) -> documents.TrimmedDocument:
    """Removes the oldest events of the queue (BullMQ)."""
    return documents.TrimmedDocument(events=queue.trim_events(wanted.max_events))


@router.post("/queues/{queue}/remove-orphans")
def remove_orphans(queue: ExistingQueue, wanted: documents.OrphansDocument | None = None) -> documents.DoneDocument:
    """Removes jobs that are in no state, so that no worker gets them, at most `limit`. Scans all keys of the Redis."""
    limit = (wanted or documents.OrphansDocument()).limit
    removed = queue.remove_orphans(limit)
    return documents.DoneDocument(jobs=removed, more=removed == limit)


@router.put("/queues/{queue}/limits", status_code=204)
def set_limits(queue: ExistingQueue, given: documents.LimitsPut) -> None:
    """Sets limits of the queue over all its workers (BullMQ)."""
    queue.set_limits(**dict(given))


@router.delete("/queues/{queue}", status_code=204)
def obliterate_queue(
    queue: ExistingQueue,
    queues: AllQueues,
    confirm: Annotated[str, Query(description="the name of the queue again")],
    force: Annotated[bool, Query(description="whether to delete active jobs, too")] = False,
) -> None:
    """Deletes the queue with all its jobs; 409 if jobs are active."""
    if confirm != queue.name:
        raise Problem(400, f"expected `confirm` to be the name of the queue, {queue.name}", field="confirm")
    queue.obliterate(force=force)
    queues.forget_names()


def _summary(handle: QueueHandle) -> RoundTrips[dict[str, Any]]:
    found = yield from describing(handle)
    return {
        "queue": handle.keys.queue,
        "protocol": handle.dialect.name,
        "version": found.version,
        "paused": found.paused,
        "pauseReason": found.pause_reason,
        "intakeOpen": found.intake_open,
        "counts": (yield from counting(handle)),
    }
