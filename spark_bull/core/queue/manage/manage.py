"""The verbs of an operator: pause, resume, retry, promote, remove, clean, drain, obliterate.

All scripts are idempotent by a receipt. A verb for a whole queue works chunk by chunk, so that no call blocks Redis for
long; after an interruption, calling it again does the rest.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from spark_bull.core.dialects.base import may_be_other_key
from spark_bull.core.dialects.changes import REMOVABLE
from spark_bull.core.dialects.fields import ONLY_OF_JOBS
from spark_bull.core.errors import DialectError, JobError, JobLocked, JobMissing, QueueBusy, WrongState, check_count
from spark_bull.core.queue.handle.handle import CHUNK_SIZE, REMOVE_SIZE, QueueHandle
from spark_bull.core.queue.handle.walk import Sweep
from spark_bull.core.queue.jobs.objects import deleting_objects, swept_ids
from spark_bull.core.queue.jobs.read import read_job
from spark_bull.core.queue.manage import verbs
from spark_bull.core.queue.manage.verbs import JobKeys, JobReply

_FINISHED: Final = ("completed", "failed")
_WAITING: Final = ("wait", "paused", "prioritized")
_NOT_CLEANED: Final = "waiting-children"
_NO_LIMIT: Final = 2**53
#: The position before the first id of a state.
_BEGINNING: Final = b"0"


def pause(handle: QueueHandle) -> None:
    """Keeps workers from claiming more jobs; active jobs continue."""
    is_first = True
    while verbs.pause(handle, first=is_first):
        is_first = False


def resume(handle: QueueHandle) -> None:
    """Lets workers claim jobs again. No job is lost, whichever version paused the queue or added jobs since."""
    while verbs.resume(handle):
        pass


def is_paused(handle: QueueHandle) -> bool:
    """Whether the queue is paused for all workers."""
    return any(handle.connection.pipeline(handle.dialect.pause_marks(handle.keys)))


def retry(handle: QueueHandle, job_id: str, state: str = "failed", *, reset_attempts: bool = False) -> None:
    """Moves a finished job back to the waiting ones: a failed one, or (BullMQ) a completed one.

    reset_attempts: whether its attempts count from 0 again.
    Raises JobMissing, JobLocked, WrongState when it is not in `state`, DialectError for a state without retry.
    """
    allowed = handle.dialect.retryable_states
    if state not in allowed:
        raise DialectError(
            f"expected `state` to be one that {handle.dialect.name} retries from ({', '.join(allowed)}), got: {state!r}"
        )
    reply = verbs.retry(handle, job_id, job_keys(handle, job_id), state, resets=reset_attempts)
    _check(handle, job_id, reply, state)


def promote(handle: QueueHandle, job_id: str) -> None:
    """Moves a delayed job to the waiting ones. Raises JobMissing, WrongState when it is not delayed."""
    handle.dialect.check_action("promote")
    _check(handle, job_id, verbs.promote(handle, job_id, job_keys(handle, job_id)), "delayed")


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
    _check(handle, job_id, reply, REMOVABLE)


def clean(
    handle: QueueHandle,
    grace_ms: int = 0,
    limit: int = 0,
    state: str = "completed",
) -> list[str]:
    """Removes jobs of a state that are older than `grace_ms`, at most `limit` (0: all); returns their ids.

    Age counts from when a job ended, else from when it started, else from when it was added; in bull-1, which has no
    other time, and for prioritized jobs of BullMQ always from when it was added. Oldest first, except for the finished
    jobs of bull-1, which have no order. Locked jobs and the next jobs of job schedulers stay. Raises OptionError or
    DialectError.
    """
    for name, number in (("grace_ms", grace_ms), ("limit", limit)):
        check_count(name, number)
    handle.dialect.state_key(state)
    if state == _NOT_CLEANED:
        raise DialectError(f"jobs in {state} can't be cleaned, as others depend on them: remove them one by one")
    store, ids = handle.dialect.state_key(state), list[str]()
    before = handle.connection.now_ms() - grace_ms
    position = _BEGINNING
    while position:
        part = Sweep(store, position, REMOVE_SIZE)
        with deleting_objects(handle, partial(swept_ids, handle, part)):
            reply = verbs.clean(
                handle,
                part,
                state=state,
                before=before,
                finished=state in _FINISHED,
                removed=len(ids),
                limit=limit - len(ids) if limit else _NO_LIMIT,
            )
        position = reply.position
        ids += reply.removed
    return ids


def drain(handle: QueueHandle, *, delayed: bool = False) -> int:
    """Removes all jobs that wait for a worker, with `delayed` also the delayed ones; returns how many.

    A paused queue stays paused; the next jobs of job schedulers stay.
    """
    states = [state for state in (*_WAITING, *(["delayed"] if delayed else [])) if state in handle.dialect.states]
    return sum(_drained(handle, state) for state in states)


def _drained(handle: QueueHandle, state: str) -> int:
    store, removed, position = handle.dialect.state_key(state), 0, _BEGINNING
    while position:
        part = Sweep(store, position, REMOVE_SIZE)
        with deleting_objects(handle, partial(swept_ids, handle, part)):
            reply = verbs.drain(handle, part, limit=_NO_LIMIT)
        position = reply.position
        removed += reply.removed
    return removed


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


def _check(handle: QueueHandle, job_id: str, reply: JobReply, wanted: str) -> None:
    """Raises the error that a script has returned for a job."""
    if reply.result != "done":
        raise job_error(handle, job_id, reply, wanted)


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


def remove_child_dependency(handle: QueueHandle, job_id: str) -> bool:
    """Removes a job from the children of its parent. Returns whether it was an unfinished one.

    Raises DialectError, and JobMissing for a job or a parent that does not exist.
    """
    handle.dialect.require("flows")
    job_keys(handle, job_id)
    result, parent_key = verbs.remove_child_dependency(handle, job_id)
    if result == "missing":
        raise _missing(handle, job_id, f"a job {job_id}")
    if result == "orphan":
        raise _missing(handle, job_id, f"the parent {parent_key} of job {job_id}")
    return result == "done"


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
            raise _missing(handle, job_id, f"a job {job_id}")
        total += removed
    return total


def _missing(handle: QueueHandle, job_id: str, what: str) -> JobMissing:
    queue = handle.keys.queue
    return JobMissing(f"expected {what} in queue {queue}, found none", queue=queue, job_id=job_id)


def holder_of(handle: QueueHandle, deduplication_id: str) -> str | None:
    """Returns the id of the job that has a deduplication id; None if it is free. Raises DialectError."""
    handle.dialect.require("deduplication")
    job_id = handle.connection.call("GET", handle.keys.deduplication(deduplication_id))
    return None if job_id is None else job_id.decode("utf-8", "replace")


def free(handle: QueueHandle, deduplication_id: str, job_id: str | None = None) -> bool:
    """Frees a deduplication id, if it belongs to `job_id` (None: to any job). Returns whether it did.

    Raises DialectError.
    """
    handle.dialect.require("deduplication")
    return verbs.free_deduplication(handle, handle.keys.deduplication(deduplication_id), job_id or "")
