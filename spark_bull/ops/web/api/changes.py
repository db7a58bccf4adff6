"""Changes of jobs: remove, update, retry, promote, cancel, fail, move; and retry, promote or cancel many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Response

from spark_bull.core.model.jobs import RawJson
from spark_bull.core.model.read_jobs import Change
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.jobs.portions import JobFilter
from spark_bull.core.queue.manage.bulk import matching_ids
from spark_bull.core.queue.manage.manage import change_job
from spark_bull.ops.web import documents, links
from spark_bull.ops.web.bulk_changes import AllChanges, BulkChanges
from spark_bull.ops.web.problems import Problem
from spark_bull.ops.web.queue_access import AllQueues, ExistingQueue, ExpectedJob, Queues

router = APIRouter(tags=["changes"])


@router.delete("/queues/{queue}/jobs/{id}", status_code=204)
def remove_job(
    queue: ExistingQueue,
    queues: AllQueues,
    job: ExpectedJob,
    withChildren: Annotated[bool, Query(description="whether to remove its children (BullMQ), too")] = True,
) -> None:
    """Removes a job and its logs. A locked job, and the next one of a job scheduler, stay: 409."""
    if withChildren:
        queues.check_removable(queue, job.id)
    queue.remove(job.id, with_children=withChildren)


@router.patch("/queues/{queue}/jobs/{id}", status_code=204)
def change(queue: ExistingQueue, job: ExpectedJob, patch: documents.JobPatch) -> None:
    """Delays a job that waits or is delayed, and changes its priority and payload, in this order."""
    data = None
    if "data" in patch.model_fields_set:
        data = RawJson("null") if patch.data is None else patch.data
    changes = []
    if patch.delay is not None:
        changes.append(Change(job.id, "delay", delay=patch.delay, data=data))
    if patch.priority is not None:
        changes.append(Change(job.id, "prioritize", priority=patch.priority, data=data))
    if not changes and data is not None:
        changes.append(Change(job.id, "update", data=data))
    if not changes:
        raise Problem(400, "expected `data`, `priority` or `delay`, got none", field="data")
    for one in changes:
        change_job(queue.handle, one)


@router.post("/queues/{queue}/jobs/{id}/retry", status_code=204)
def retry_job(queue: ExistingQueue, job: ExpectedJob, how: documents.RetryDocument | None = None) -> None:
    """Moves a failed (BullMQ: or completed) job back to the waiting ones; 409 if it is in another state."""
    how = how or documents.RetryDocument()
    queue.retry(job.id, how.state, reset_attempts=how.reset_attempts)


@router.post("/queues/{queue}/jobs/{id}/promote", status_code=204)
def promote_job(queue: ExistingQueue, job: ExpectedJob) -> None:
    """Moves a delayed job to the waiting ones; 409 if it is in another state."""
    queue.promote(job.id)


@router.post("/queues/{queue}/jobs/{id}/cancel", status_code=202)
def cancel_job(queue: ExistingQueue, job: ExpectedJob, why: documents.ReasonDocument | None = None) -> None:
    """Asks the Spark worker that processes a job to end it: it fails within some seconds."""
    queue.cancel(job.id, why.reason if why else None)


@router.post("/queues/{queue}/cancel", status_code=202)
def cancel_all(queue: ExistingQueue, why: documents.ReasonDocument | None = None) -> documents.DoneDocument:
    """Asks the Spark workers of the queue to end all jobs that they process now: they fail within some seconds."""
    return documents.DoneDocument(jobs=queue.cancel_all(why.reason if why else None))


@router.delete("/queues/{queue}/jobs/{id}/logs", status_code=204)
def clear_logs(
    queue: ExistingQueue,
    job: ExpectedJob,
    keep: Annotated[int, Query(ge=0, le=2**31 - 1, description="number of last rows that stay")] = 0,
) -> None:
    """Removes rows of a job's log."""
    queue.clear_logs(job.id, keep)


@router.post("/queues/{queue}/jobs/{id}/fail", status_code=204)
def fail_job(queue: ExistingQueue, job: ExpectedJob, why: documents.ReasonDocument | None = None) -> None:
    """Fails a job that waits or is delayed, without a further attempt."""
    queue.fail(job.id, (why and why.reason) or "failed by an operator")


@router.post("/queues/{queue}/jobs/{id}/move", status_code=204)
def move_job(queue: ExistingQueue, queues: AllQueues, job: ExpectedJob, where: documents.MoveDocument) -> None:
    """Moves a job to another queue of this server, where it is a new one with the same name, payload and options."""
    queue.move(job.id, queues.existing(where.to).name)


@router.post("/queues/{queue}/changes", status_code=202)
def change_all(
    queue: ExistingQueue, queues: AllQueues, changes: AllChanges, wanted: documents.ChangesDocument, response: Response
) -> documents.StartedDocument:
    """Begins to change all jobs of a state that meet the conditions, in one recorded write.

    The write looks for the jobs first, then changes them in portions. With a token for some queues, it keeps jobs with
    children in other queues, rather than remove them.
    """
    write_id = start_change(queue, queues, changes, wanted)
    response.headers["Location"] = f"{links.api()}/queues/{links.segment(queue.name)}/writes/{write_id}"
    return documents.StartedDocument(id=write_id)


def start_change(queue: BullQueue, queues: Queues, changes: BulkChanges, wanted: documents.ChangesDocument) -> str:
    """Begins a change of many jobs; returns the id of its write. Raises Problem, and the errors of BulkChange."""
    action, dialect = wanted.action, queue.handle.dialect
    state = wanted.state or ("delayed" if action == "promote" else "failed")
    dialect.state_key(state)
    allowed: Mapping[str, Sequence[str]] = {"retry": dialect.retryable_states, "promote": ("delayed",)}
    if state not in allowed.get(action, (state,)):
        raise Problem(
            400, f"expected `state` to be {' or '.join(allowed[action])} to {action} jobs, got: {state}", field="state"
        )
    if (action == "move") != (wanted.move_to is not None):
        raise Problem(400, "expected `moveTo` with the action move, and with no other one", field="moveTo")
    if wanted.reset_attempts and action != "retry":
        raise Problem(400, f"expected `resetAttempts` with the action retry only, got: {action}", field="resetAttempts")
    to = queues.existing(wanted.move_to).name if wanted.move_to is not None else None
    which = JobFilter(wanted.name, wanted.text, wanted.since, wanted.until, wanted.reason)
    found: Iterable[Sequence[str]] = matching_ids(queue.handle, state, which)
    if action == "remove":
        found = ([one for one in ids if _is_removable(queues, queue, one)] for ids in found)
    change = Change("", action, state=state, reset_attempts=wanted.reset_attempts, to=to)
    return changes.start(queue.handle, change, found)


def _is_removable(queues: Queues, queue: BullQueue, job_id: str) -> bool:
    try:
        queues.check_removable(queue, job_id)
    except Problem:
        return False
    return True
