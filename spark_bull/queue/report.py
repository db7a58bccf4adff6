"""Changes that a processor makes to its job while it runs: progress, log rows, data."""

from __future__ import annotations

from spark_bull.errors import JobMissing
from spark_bull.queue.handle import QueueHandle


def update_progress(handle: QueueHandle, job_id: str, progress: str) -> None:
    """Stores and publishes the progress of a job, JSON text. Raises JobMissing."""
    _check(handle, job_id, handle.run("progress", {"job_id": job_id, "progress": progress}, **_job(handle, job_id)))


def add_log(handle: QueueHandle, job_id: str, row: str, keep: int = 0) -> int:
    """Adds a row to a job's log and keeps its last `keep` rows (0: all); returns their number. Raises JobMissing."""
    args = {"job_id": job_id, "row": row, "keep": keep}
    count: int = handle.run_once("log", args, **_job(handle, job_id), logs=handle.keys.logs(job_id))
    _check(handle, job_id, count)
    return count


def update_data(handle: QueueHandle, job_id: str, data: str) -> None:
    """Replaces a job's payload, JSON text. Raises JobMissing."""
    _check(handle, job_id, handle.run("update_data", {"job_id": job_id, "data": data}, **_job(handle, job_id)))


def _job(handle: QueueHandle, job_id: str) -> dict[str, str]:
    return {"job": handle.keys.job(job_id)}


def _check(handle: QueueHandle, job_id: str, answer: int) -> None:
    if answer < 0:
        queue = handle.keys.queue
        raise JobMissing(f"expected a job {job_id} in queue {queue}, found none", queue=queue, job_id=job_id)
