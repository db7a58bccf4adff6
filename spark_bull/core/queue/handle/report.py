"""What is reported about a job, by its processor or from outside: progress, log rows, data."""

from __future__ import annotations

from typing import Final
from uuid import uuid4

from spark_bull.core.errors import JobLockLost, JobMissing
from spark_bull.core.queue.handle.handle import QueueHandle

#: Replies of the scripts: the job does not exist, its lock does not hold the token.
_MISSING: Final = -1
_LOCK_LOST: Final = -2


def update_progress(
    handle: QueueHandle, job_id: str, progress: str, *, lock_token: str = "", of_checkpoint: bool = False
) -> None:
    """Stores and publishes the progress of a job, JSON text. Raises JobMissing, and JobLockLost.

    The lock of a job with a checkpoint must hold `lock_token` ("": none is held). of_checkpoint: whether a checkpoint
    is added or removed, for which the lock must be held, too.
    """
    args = {"job_id": job_id, "progress": progress, "lock_token": lock_token, "of_checkpoint": int(of_checkpoint)}
    keys = {"job": handle.keys.job(job_id), "lock": handle.keys.lock(job_id)}
    _raise_unless_done(handle, job_id, handle.run("progress", args, **keys))


def add_log(handle: QueueHandle, job_id: str, row: str, keep: int = 0) -> int:
    """Adds a row to a job's log and keeps its last `keep` rows (0: all); returns their number. Raises JobMissing."""
    keys = {"job": handle.keys.job(job_id), "logs": handle.keys.logs(job_id)}
    count = int(handle.run_once("log", {"row": row, "keep": keep}, **keys))
    _raise_unless_done(handle, job_id, count)
    return count


def update_data(handle: QueueHandle, job_id: str, data: str) -> None:
    """Replaces a job's payload, JSON text. Raises JobMissing."""
    args = {"data": handle.sealed("data", data, uuid4().hex)}
    _raise_unless_done(handle, job_id, handle.run("update_data", args, job=handle.keys.job(job_id)))


def lock_lost(handle: QueueHandle, job_id: str) -> JobLockLost:
    """The error of an attempt that no longer has the lock of its job."""
    queue = handle.keys.queue
    return JobLockLost(
        f"expected the lock of job {job_id} in queue {queue} to be held by this attempt, it is lost: "
        "another worker may process the job; end this attempt",
        queue=queue,
        job_id=job_id,
    )


def job_missing(handle: QueueHandle, job_id: str, what: str = "a job") -> JobMissing:
    """The error for a job that does not exist."""
    queue = handle.keys.queue
    return JobMissing(f"expected {what} {job_id} in queue {queue}, found none", queue=queue, job_id=job_id)


def _raise_unless_done(handle: QueueHandle, job_id: str, answer: int) -> None:
    if answer == _LOCK_LOST:
        raise lock_lost(handle, job_id)
    if answer == _MISSING:
        raise job_missing(handle, job_id)
