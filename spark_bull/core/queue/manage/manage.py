"""What BullQueue and others do to a queue or to one of its jobs: remove, obliterate, free; and the errors of refusals.

Each works chunk by chunk, so that no call blocks Redis for long; after an interruption, calling it again does the rest.
"""

from __future__ import annotations

from spark_bull.core.dialects.base import may_be_other_key
from spark_bull.core.dialects.changes import REMOVABLE
from spark_bull.core.dialects.fields import ONLY_OF_JOBS
from spark_bull.core.errors import JobError, JobLocked, JobMissing, QueueBusy, WrongState
from spark_bull.core.queue.handle.handle import CHUNK_SIZE, REMOVE_SIZE, QueueHandle
from spark_bull.core.queue.jobs.objects import deleting_objects
from spark_bull.core.queue.jobs.read import read_job
from spark_bull.core.queue.manage import verbs
from spark_bull.core.queue.manage.verbs import JobKeys, JobReply


def is_paused(handle: QueueHandle) -> bool:
    """Whether the queue is paused for all workers."""
    return any(handle.connection.pipeline(handle.dialect.pause_marks(handle.keys)))


def remove(handle: QueueHandle, job_id: str, *, with_children: bool = True, chunk_size: int = CHUNK_SIZE) -> None:
    """Removes a job, its logs and (BullMQ) its children; a parent that waited for it alone starts.

    Raises JobMissing; JobLocked while it or a child is locked by a worker, and removes none of them; WrongState for the
    next job of a job scheduler, and for a job with more than 1,000 levels of children. A tree of more than `chunk_size`
    jobs takes several calls, each of which can raise JobLocked.
    """
    reply = JobReply("open")
    with deleting_objects(handle, lambda: [job_id.encode()]):
        while reply.result == "open":
            keys = job_keys(handle, job_id)
            reply = verbs.remove(handle, job_id, keys, with_children=with_children, limit=chunk_size)
    if reply.result != "done":
        raise job_error(handle, job_id, reply, REMOVABLE)


def obliterate(handle: QueueHandle, *, force: bool = False) -> None:
    """Deletes a queue with all its jobs. It is paused until it is deleted.

    Raises QueueBusy when jobs are active, unless `force`: then outcomes of these jobs are rejected. Staged and
    registered writes stay: their jobs are added to the new queue. A parent that waits for children of another queue
    stays, as in BullMQ. Receipts of other processes expire within an hour.
    """
    while True:
        reply = verbs.obliterate(handle, limit=REMOVE_SIZE, force=force)
        if reply.state == "done":
            # The reply has arrived: the receipt of this thread is not needed any more.
            handle.connection.call("UNLINK", handle.keys.receipt(handle.sender))
            return
        if reply.state == "active":
            raise _busy(handle, reply.active)


def check_obliterate(handle: QueueHandle) -> None:
    """Raises QueueBusy when `obliterate` would, and changes nothing."""
    active = int(handle.connection.call("LLEN", handle.keys["active"]))
    if active:
        raise _busy(handle, active)


def _busy(handle: QueueHandle, active: int) -> QueueBusy:
    queue = handle.keys.queue
    return QueueBusy(
        f"expected no active job in queue {queue}, got {active:,}: stop its workers first, or obliterate it with force",
        queue=queue,
        active=active,
    )


def job_keys(handle: QueueHandle, job_id: str) -> JobKeys:
    """The keys of a job. Raises JobMissing for an id that is the name of another key of the queue, such as `wait`."""
    if may_be_other_key(job_id) and not _is_job(handle, job_id):
        raise job_error(handle, job_id, JobReply("missing"), "")
    return JobKeys(handle.keys.job(job_id), handle.keys.lock(job_id))


def _is_job(handle: QueueHandle, job_id: str) -> bool:
    key, call = handle.keys.job(job_id), handle.connection.call
    return call("TYPE", key) == b"hash" and any(call("HMGET", key, *ONLY_OF_JOBS))


def job_error(handle: QueueHandle, job_id: str, reply: JobReply, wanted: str) -> JobError:
    """The error for a job that a verb has refused. wanted: the state that was expected."""
    queue = handle.keys.queue
    result, detail = reply
    subject = f"job {job_id} of queue {queue}"
    if result == "missing":
        return JobMissing(f"expected a job {job_id} in queue {queue}, found none", queue=queue, job_id=job_id)
    if result == "locked":
        return JobLocked(
            f"{detail or subject} is locked by a worker: wait until it has finished, or until its lock expires",
            queue=queue,
            job_id=job_id,
        )
    if result == "scheduled":
        return WrongState(
            f"{subject} is the next job of a job scheduler: remove the scheduler instead", queue=queue, job_id=job_id
        )
    job = read_job(handle, job_id)
    return WrongState(
        f"expected {subject} to be {wanted}, it is {job.state if job and job.state else 'in no state'}",
        queue=queue,
        job_id=job_id,
    )


def remove_unprocessed_children(handle: QueueHandle, job_id: str, *, chunk_size: int = CHUNK_SIZE) -> int:
    """Removes descendants of a job that have not ended and are not locked; returns how many.

    Raises DialectError, and JobMissing for a job that does not exist.
    """
    handle.dialect.require("flows")
    job_keys(handle, job_id)
    position, total = b"0", 0
    while position:
        position, removed = verbs.remove_unprocessed_children(handle, job_id, position, limit=chunk_size)
        if removed is None and total:
            return total
        if removed is None:
            raise missing(handle, job_id, f"a job {job_id}")
        total += removed
    return total


def missing(handle: QueueHandle, job_id: str, what: str) -> JobMissing:
    queue = handle.keys.queue
    return JobMissing(f"expected {what} in queue {queue}, found none", queue=queue, job_id=job_id)


def free(handle: QueueHandle, deduplication_id: str, job_id: str | None = None) -> bool:
    """Frees a deduplication id, if it belongs to `job_id` (None: to any job). Returns whether it did.

    Raises DialectError.
    """
    handle.dialect.require("deduplication")
    return verbs.free_deduplication(handle, handle.keys.deduplication(deduplication_id), job_id or "")
