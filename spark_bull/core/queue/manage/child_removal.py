"""Removal of children: from the dependencies of their parent, or with all their keys."""

from __future__ import annotations

from spark_bull.core.errors import JobMissing
from spark_bull.core.queue.handle.handle import CHUNK_SIZE, QueueHandle
from spark_bull.core.queue.manage import verbs
from spark_bull.core.queue.manage.manage import job_keys


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
