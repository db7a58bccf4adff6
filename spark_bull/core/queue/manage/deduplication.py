"""The deduplication ids of a queue: which job has an id, and the release of an id."""

from __future__ import annotations

from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.manage import verbs


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
