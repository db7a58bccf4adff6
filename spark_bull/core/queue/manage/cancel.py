"""Requests to cancel jobs, which the slots that hold the jobs read. They are kept in one hash per queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgpack

from spark_bull.core.errors import WrongState, encodable, expected
from spark_bull.core.queue.handle.handle import CHUNK_SIZE, QueueHandle
from spark_bull.core.queue.jobs.read import read_job
from spark_bull.core.queue.manage.manage import check_job_id, job_error

#: Requests that no slot has read expire after this time.
REQUEST_TTL_MS: Final = 3_600_000


class CancelRequest(NamedTuple):
    """A request to cancel a job.

    token, at: token of the job's lock and time of Redis, ms since 1970, when the job was to be cancelled.
    """

    token: str
    at: int
    reason: str


def request_cancel(handle: QueueHandle, job_id: str, reason: str | None = None) -> None:
    """Asks the slot that holds a job to cancel it. Raises JobMissing; WrongState unless a slot of a Worker holds it."""
    reason_text = _reason_text(reason)
    check_job_id(handle, job_id)
    (answer,) = _request(handle, [job_id], reason_text)
    if answer == "done":
        return
    job, queue = read_job(handle, job_id), handle.keys.queue
    if job is None or job.state != "active":
        raise job_error(handle, job_id, "missing" if job is None else answer, "active")
    why = (
        "be locked by a worker, its lock has expired: it is rescued as a stalled job, unless its worker still settles "
        "it"
    )
    if answer == "foreign":
        why = (
            "be held by a Spark Worker: jobs of Node workers, and of queries with mode=claim, cannot be cancelled from "
            "outside"
        )
    raise WrongState(f"expected job {job_id} of queue {queue} to {why}", queue=queue, job_id=job_id)


def request_cancel_all(handle: QueueHandle, reason: str | None = None) -> int:
    """Asks all slots that hold jobs of the queue to cancel them; returns the number of jobs.

    Jobs that others than slots of a Worker hold, and jobs that are claimed meanwhile, go on.
    """
    reason_text = _reason_text(reason)
    # The list is read once, as jobs enter and leave it at both ends.
    active = handle.connection.call("LRANGE", handle.keys["active"], 0, -1)
    cancelled = 0
    for first in range(0, len(active), CHUNK_SIZE):
        cancelled += _request(handle, active[first : first + CHUNK_SIZE], reason_text).count("done")
    return cancelled


def _request(handle: QueueHandle, job_ids: Sequence[str | bytes], reason: bytes) -> list[str]:
    """Asks the slots that hold some jobs to cancel them. Returns done, missing, unlocked or foreign for each."""
    answers = handle.run("cancel", {"ids": job_ids, "reason": reason, "ttl_ms": REQUEST_TTL_MS})
    return [answer.decode() for answer in answers]


def _reason_text(reason: str | None) -> bytes:
    if reason is not None and not isinstance(reason, str):
        raise expected("reason", "a text", reason)
    return encodable("reason", reason or "").encode()


def cancel_requests(handle: QueueHandle, job_ids: Sequence[str]) -> dict[str, CancelRequest]:
    """Reads the requests for these jobs, by id."""
    packed = handle.connection.call("HMGET", handle.keys["cancels"], *job_ids)
    return {
        job_id: CancelRequest(*msgpack.unpackb(request, raw=False, unicode_errors="replace"))
        for job_id, request in zip(job_ids, packed, strict=True)
        if request is not None
    }


def forget_request(handle: QueueHandle, job_id: str) -> None:
    """Deletes the request for a job."""
    handle.connection.call("HDEL", handle.keys["cancels"], job_id)
