"""Changes of jobs: remove, update, retry, promote, cancel, fail, move; and retry, promote or cancel many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Query

from spark_bull.core.model.jobs import RawJson
from spark_bull.core.model.read_jobs import Change
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.jobs.read import read_jobs
from spark_bull.core.queue.manage.manage import change_job
from spark_bull.ops.web.documents import (
    DoneDocument,
    JobPatch,
    MoveDocument,
    PromoteAllDocument,
    ReasonDocument,
    RetryAllDocument,
    RetryDocument,
)
from spark_bull.ops.web.problems import Problem
from spark_bull.ops.web.queue_access import AllQueues, ExistingQueue, ExpectedJob

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
def change(queue: ExistingQueue, job: ExpectedJob, patch: JobPatch) -> None:
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
def retry_job(queue: ExistingQueue, job: ExpectedJob, how: RetryDocument | None = None) -> None:
    """Moves a failed (BullMQ: or completed) job back to the waiting ones; 409 if it is in another state."""
    how = how or RetryDocument()
    queue.retry(job.id, how.state, reset_attempts=how.reset_attempts)


@router.post("/queues/{queue}/jobs/{id}/promote", status_code=204)
def promote_job(queue: ExistingQueue, job: ExpectedJob) -> None:
    """Moves a delayed job to the waiting ones; 409 if it is in another state."""
    queue.promote(job.id)


@router.post("/queues/{queue}/jobs/{id}/cancel", status_code=202)
def cancel_job(queue: ExistingQueue, job: ExpectedJob, why: ReasonDocument | None = None) -> None:
    """Asks the Spark worker that processes a job to end it: it fails within some seconds."""
    queue.cancel(job.id, why.reason if why else None)


@router.post("/queues/{queue}/cancel", status_code=202)
def cancel_all(queue: ExistingQueue, why: ReasonDocument | None = None) -> DoneDocument:
    """Asks the Spark workers of the queue to end all jobs that they process now: they fail within some seconds."""
    return DoneDocument(jobs=queue.cancel_all(why.reason if why else None))


@router.delete("/queues/{queue}/jobs/{id}/logs", status_code=204)
def clear_logs(
    queue: ExistingQueue,
    job: ExpectedJob,
    keep: Annotated[int, Query(ge=0, le=2**31 - 1, description="number of last rows that stay")] = 0,
) -> None:
    """Removes rows of a job's log."""
    queue.clear_logs(job.id, keep)


@router.post("/queues/{queue}/jobs/{id}/fail", status_code=204)
def fail_job(queue: ExistingQueue, job: ExpectedJob, why: ReasonDocument | None = None) -> None:
    """Fails a job that waits or is delayed, without a further attempt."""
    queue.fail(job.id, (why and why.reason) or "failed by an operator")


@router.post("/queues/{queue}/jobs/{id}/move", status_code=204)
def move_job(queue: ExistingQueue, queues: AllQueues, job: ExpectedJob, where: MoveDocument) -> None:
    """Moves a job to another queue of this server, where it is a new one with the same name, payload and options."""
    queue.move(job.id, queues.existing(where.to).name)


@router.post("/queues/{queue}/retry")
def retry_all(queue: ExistingQueue, wanted: RetryAllDocument | None = None) -> DoneDocument:
    """Retries jobs of a state, at most `limit`; repeat the request until `more` is false."""
    wanted = wanted or RetryAllDocument()
    ids = _ids(queue, wanted.state, wanted.name)
    found = list(islice(ids, wanted.limit))
    changes = [Change(i, "retry", state=wanted.state, reset_attempts=wanted.reset_attempts) for i in found]
    return _change_all(queue, changes, wanted.limit)


@router.post("/queues/{queue}/promote")
def promote_all(queue: ExistingQueue, wanted: PromoteAllDocument | None = None) -> DoneDocument:
    """Promotes delayed jobs, at most `limit`; repeat the request until `more` is false."""
    wanted = wanted or PromoteAllDocument()
    found = list(islice(_ids(queue, "delayed", wanted.name), wanted.limit))
    return _change_all(queue, [Change(i, "promote") for i in found], wanted.limit)


def _ids(queue: BullQueue, state: str, name: str | None) -> Iterator[str]:
    """The ids of the jobs of a state with a name; of all, if it is None."""
    queue.handle.dialect.state_key(state)
    for chunk in read_jobs(queue.handle, [state], ["name"] if name else ()):
        names = chunk.column("name") if name else chunk.ids
        for job_id, found in zip(chunk.ids, names, strict=True):
            if not name or found == name.encode("utf-8", "replace"):
                yield job_id.decode("utf-8", "replace")


def _change_all(queue: BullQueue, changes: list[Change], limit: int) -> DoneDocument:
    outcomes = Counter(changed.outcome == "done" for changed in queue.manage(changes))
    # Jobs that can't be changed would be found again.
    more = len(changes) == limit and outcomes[True] > 0
    return DoneDocument(jobs=outcomes[True], skipped=outcomes[False], more=more)
