"""What is done with a queue: writes, ledgers, workers with their slots, job schedulers."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Path

from spark_bull.core.queue.monitor.find import workers
from spark_bull.ops.web.documents import (
    AddedDocument,
    LedgerList,
    NextDocument,
    SchedulerList,
    SchedulerPut,
    WorkerList,
    WriteList,
)
from spark_bull.ops.web.guard import unescaped
from spark_bull.ops.web.json_output import Json
from spark_bull.ops.web.problems import Problem
from spark_bull.ops.web.queue_access import ExistingQueue
from spark_bull.ops.web.readers import AllReaders
from spark_bull.ops.web.shown import document
from spark_bull.run.slot.status import latest, slots_of

router = APIRouter(tags=["activity"])


@router.get("/queues/{queue}/writes", response_model=WriteList)
def list_writes(queue: ExistingQueue) -> Json:
    """Lists the writes of Spark of the last 30 days."""
    return Json({"writes": [{**document(w), "durationMs": w.duration_ms} for w in queue.writes()]})


@router.get("/queues/{queue}/ledgers", response_model=LedgerList)
def list_ledgers(queue: ExistingQueue, readers: AllReaders) -> Json:
    """Lists the ledgers of the queries that read results. A new one appears after 15 s, or longer."""
    return Json({"ledgers": document(readers.of(queue).ledgers)})


@router.get("/queues/{queue}/workers", response_model=WorkerList)
def list_workers(queue: ExistingQueue, readers: AllReaders) -> Json:
    """Lists connected workers, and the slots of Spark's workers. A new one of Spark appears after 15 s, or longer."""
    handle = queue.handle
    connected = [
        {"name": worker.name, "address": worker.address, "ageMs": worker.age * 1_000, "idleMs": worker.idle * 1_000}
        for worker in workers(handle.connection, handle.keys)
    ]
    counted = ("claimed", "completed", "failed", "retried", "returned", "lost")
    slots = [
        {
            "worker": name,
            "slot": slot["slot"],
            "state": slot["state"],
            "startedOn": slot["started"],
            **{counter: slot.get(counter, 0) for counter in counted},
        }
        for name in readers.of(queue).workers
        for slot in latest(slots_of(handle, name))
    ]
    return Json({"workers": connected, "slots": slots})


@router.get("/queues/{queue}/schedulers", response_model=SchedulerList)
def list_schedulers(queue: ExistingQueue) -> Json:
    """Lists the job schedulers of the queue."""
    return Json({"schedulers": document(queue.schedulers())})


_SCHEDULE: Final = "/queues/{queue}/schedulers/{scheduler}"
SchedulerId = Annotated[str, Path(description="id of the job scheduler", min_length=1, max_length=10_000)]


@router.put(_SCHEDULE)
def put_scheduler(queue: ExistingQueue, scheduler: SchedulerId, given: SchedulerPut) -> NextDocument:
    """Creates or changes a job scheduler; its next job is added at once."""
    return NextDocument(next=queue.upsert_scheduler(unescaped(scheduler), **dict(given)))


@router.post(f"{_SCHEDULE}/run", status_code=201)
def run_scheduler(queue: ExistingQueue, scheduler: SchedulerId) -> AddedDocument:
    """Adds a job like the next one of a job scheduler, which runs at once; the next one still runs at its time."""
    return AddedDocument(ids=[queue.run_scheduler(unescaped(scheduler))], added=1, duplicates=0, deduplicated=0)


@router.delete(_SCHEDULE, status_code=204)
def remove_scheduler(queue: ExistingQueue, scheduler: SchedulerId) -> None:
    """Removes a job scheduler and its next job."""
    if not queue.remove_scheduler(unescaped(scheduler)):
        raise Problem(404, f"expected a job scheduler {unescaped(scheduler)[:200]} in queue {queue.name}, found none")
