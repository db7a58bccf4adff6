"""What a queue has besides jobs: writes, ledgers, workers with their slots, job schedulers, groups."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query

from spark_bull.core.model.queues import WriteRecord
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.dispatch.write_records import read_record, records
from spark_bull.core.queue.manage.bulk import abort_change
from spark_bull.core.queue.manage.limits import read_groups
from spark_bull.ops.web import documents
from spark_bull.ops.web.middleware import unescaped
from spark_bull.ops.web.problems import Problem
from spark_bull.ops.web.queue_access import AllReaders, ExistingQueue, connected_workers
from spark_bull.ops.web.shown import Json, document
from spark_bull.run.slot.status import latest, slots_of

router = APIRouter(tags=["activity"])


@router.get("/queues/{queue}/writes", response_model=documents.WriteList)
def list_writes(
    queue: ExistingQueue,
    start: Annotated[
        int, Query(ge=0, lt=2**53, description="number of the first write, `next` of the page before")
    ] = 0,
    limit: Annotated[int, Query(ge=1, le=1_000, description="maximum number of writes")] = 50,
) -> Json:
    """Lists the writes of Spark of the last 30 days: unfinished ones, then the others, each the newest first."""
    found, following = page_of_writes(queue, start, limit)
    return Json({"writes": [_shown(record) for record in found], "next": following})


def page_of_writes(queue: BullQueue, start: int, limit: int) -> tuple[list[WriteRecord], int | None]:
    """A page of the writes of a queue, and the number of the first one of the next page; None: there is none."""
    found = list(islice(records(queue.handle, start), limit + 1))
    return found[:limit], start + limit if len(found) > limit else None


WriteId = Annotated[str, Path(description="id of the write", min_length=1, max_length=1_000)]


@router.get("/queues/{queue}/writes/{write}", response_model=documents.WriteDocument)
def read_write(queue: ExistingQueue, write: WriteId) -> Json:
    """Reads one write, which may still be in progress: it has processed `done` of `jobs`."""
    return Json(_shown(existing_write(queue, unescaped(write))))


@router.delete("/queues/{queue}/writes/{write}", response_model=documents.WriteDocument)
def abort_write(queue: ExistingQueue, write: WriteId) -> Json:
    """Aborts a write that changes jobs: what it has changed stays changed. 409 for a write that adds jobs."""
    return Json(_shown(aborted_write(queue, unescaped(write))))


def existing_write(queue: BullQueue, write_id: str) -> WriteRecord:
    """The record of a write. Raises Problem 404."""
    return _found(queue, write_id, read_record(queue.handle, write_id))


def aborted_write(queue: BullQueue, write_id: str) -> WriteRecord:
    """Aborts a write; returns its record. Raises Problem 404 or 409."""
    record = _found(queue, write_id, abort_change(queue.handle, write_id))
    if record.state in ("open", "prepared"):
        raise Problem(409, f"expected a write that changes jobs, as only these are aborted; {write_id} adds jobs")
    return record


def _found(queue: BullQueue, write_id: str, record: WriteRecord | None) -> WriteRecord:
    if record is None:
        raise Problem(404, f"expected a write {write_id[:200]} to queue {queue.name}, found none")
    return record


def _shown(record: WriteRecord) -> dict[str, Any]:
    return {**document(record), "durationMs": record.duration_ms}


@router.get("/queues/{queue}/ledgers", response_model=documents.LedgerList)
def list_ledgers(queue: ExistingQueue, readers: AllReaders) -> Json:
    """Lists the ledgers of the queries that read results. A new one appears after 15 s, or longer."""
    return Json({"ledgers": document(readers.of(queue).ledgers)})


@router.get("/queues/{queue}/workers", response_model=documents.WorkerList)
def list_workers(queue: ExistingQueue, readers: AllReaders) -> Json:
    """Lists connected workers, and the slots of Spark's workers. A new one of Spark appears after 15 s, or longer."""
    handle = queue.handle
    found = connected_workers(handle)
    connected = [
        {"name": worker.name, "address": worker.address, "ageMs": worker.age * 1_000, "idleMs": worker.idle * 1_000}
        for worker in found or ()
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
    return Json({"workers": None if found is None else connected, "slots": slots})


@router.get("/queues/{queue}/schedulers", response_model=documents.SchedulerList)
def list_schedulers(queue: ExistingQueue) -> Json:
    """Lists the job schedulers of the queue."""
    return Json({"schedulers": document(queue.schedulers())})


_SCHEDULE: Final = "/queues/{queue}/schedulers/{scheduler}"
SchedulerId = Annotated[str, Path(description="id of the job scheduler", min_length=1, max_length=10_000)]


@router.put(_SCHEDULE)
def put_scheduler(
    queue: ExistingQueue, scheduler: SchedulerId, given: documents.SchedulerPut
) -> documents.NextDocument:
    """Creates or changes a job scheduler; its next job is added at once."""
    return documents.NextDocument(next=queue.upsert_scheduler(unescaped(scheduler), **dict(given)))


@router.post(f"{_SCHEDULE}/run", status_code=201)
def run_scheduler(queue: ExistingQueue, scheduler: SchedulerId) -> documents.AddedDocument:
    """Adds a job like the next one of a job scheduler, which runs at once; the next one still runs at its time."""
    return documents.AddedDocument(
        ids=[queue.run_scheduler(unescaped(scheduler))], added=1, duplicates=0, deduplicated=0
    )


@router.delete(_SCHEDULE, status_code=204)
def remove_scheduler(queue: ExistingQueue, scheduler: SchedulerId) -> None:
    """Removes a job scheduler and its next job."""
    if not queue.remove_scheduler(unescaped(scheduler)):
        raise Problem(404, f"expected a job scheduler {unescaped(scheduler)[:200]} in queue {queue.name}, found none")


groups_router = APIRouter(tags=["groups"])

_GROUP: Final = "/queues/{queue}/groups/{group}"
GroupName = Annotated[str, Path(description="name of the group", min_length=1, max_length=10_000)]


@groups_router.get("/queues/{queue}/groups", response_model=documents.GroupList)
def list_groups(
    queue: ExistingQueue,
    limit: Annotated[int, Query(ge=1, le=1_000, description="maximum number of groups")] = 100,
    after: Annotated[str | None, Query(max_length=10_000, description="`next` of the page before")] = None,
) -> Json:
    """Lists the groups of jobs of the queue that workers of Spark have met, in an order of no meaning."""
    found = list(islice(read_groups(queue.handle, after), limit + 1))
    return Json({"groups": document(found[:limit]), "next": found[limit - 1].group if len(found) > limit else None})


@groups_router.put(f"{_GROUP}/limits", status_code=204)
def set_group_limit(queue: ExistingQueue, group: GroupName, given: documents.LimitsPut) -> None:
    """Sets limits of a group of jobs, for workers of Spark."""
    queue.set_group_limit(unescaped(group), **dict(given))


@groups_router.delete(f"{_GROUP}/limits", status_code=204)
def remove_group_limit(queue: ExistingQueue, group: GroupName) -> None:
    """Removes the limits of a group of jobs: then the workers' limits hold."""
    queue.remove_group_limit(unescaped(group))


@groups_router.post(f"{_GROUP}/pause", status_code=204)
def pause_group(queue: ExistingQueue, group: GroupName) -> None:
    """Keeps workers of Spark from starting jobs of a group; its active jobs continue."""
    queue.pause_group(unescaped(group))


@groups_router.post(f"{_GROUP}/resume", status_code=204)
def resume_group(queue: ExistingQueue, group: GroupName) -> None:
    """Lets workers start jobs of a group again."""
    queue.resume_group(unescaped(group))
