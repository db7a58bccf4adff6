"""The deduplication ids of a queue: which job has an id, and the release of an id."""

from __future__ import annotations

from spark_bull.errors import DialectError
from spark_bull.queue.core import verbs
from spark_bull.queue.core.handle import QueueHandle


def holder_of(handle: QueueHandle, deduplication_id: str) -> str | None:
    """Returns the id of the job that has a deduplication id; None if it is free. Raises DialectError."""
    _check(handle)
    job_id = handle.connection.call("GET", handle.keys.deduplication(deduplication_id))
    return None if job_id is None else job_id.decode()


def free(handle: QueueHandle, deduplication_id: str, job_id: str | None = None) -> bool:
    """Frees a deduplication id, if it belongs to `job_id` (None: to any job). Returns whether it did.

    Raises DialectError.
    """
    _check(handle)
    return verbs.free_deduplication(handle, handle.keys.deduplication(deduplication_id), job_id or "")


def _check(handle: QueueHandle) -> None:
    if handle.dialect.deduplication_option is None:
        raise DialectError(f"expected a queue of BullMQ or Bull 4: {handle.dialect.name} has no deduplication ids")
