"""Advances job schedulers: when a worker claims a job that a job scheduler has made, the scheduler's next job is added.

The Node libraries do the same with every claimed job, before it runs. If the worker dies before that, the job stalls,
and the worker that claims it again advances the job scheduler.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import msgpack

from spark_bull.core.errors import OptionError, PatternError, QueueDamaged
from spark_bull.core.keys import SCHEDULED
from spark_bull.core.model.outcomes import ClaimedJob
from spark_bull.core.queue.handle.handle import RECEIPT_TTL_MS, QueueHandle

log = logging.getLogger("spark_bull")

#: Job schedulers that one script call advances.
ADVANCE_SIZE: Final = 100


def may_be_scheduled(job_id: str) -> bool:
    """Whether a job scheduler can have made the job: a custom id can have the same form."""
    return job_id.startswith(SCHEDULED)


def advance(
    handle: QueueHandle, sender: str, call: str, jobs: Sequence[ClaimedJob], now: int, *, again: bool = False
) -> None:
    """Adds the next jobs of the job schedulers that have made these claimed jobs; other jobs cost nothing.

    sender, call: as in `claim.work`; a repeated call does not advance a scheduler twice. now: time of Redis, ms. again:
    the process that claimed the jobs may have done it. A scheduler that can't be read is logged as an error; its job
    runs nevertheless.
    """
    # One search in all ids together is much faster than one for each id.
    if SCHEDULED not in "".join([job.id for job in jobs]):
        return
    scheduled = [job for job in jobs if may_be_scheduled(job.id)]
    if not scheduled:
        return
    version, found = version_of(handle), []
    for job in scheduled:
        try:
            fields = handle.dialect.next_job(job, now, version)
        except (PatternError, OptionError) as error:
            _error(handle, job, str(error))
            continue
        if fields is not None:
            found.append((job, {name: value for name, value in fields.items() if value is not None}))
    receipt = handle.keys.receipt(f"schedules:{sender}")
    for start in range(0, len(found), ADVANCE_SIZE):
        part = found[start : start + ADVANCE_SIZE]
        rows = msgpack.packb([fields for _, fields in part], use_bin_type=False)
        args = {"call": f"{call}:{start}", "ttl_ms": RECEIPT_TTL_MS, "again": int(again), "jobs": rows}
        try:
            made = handle.run("advance", args, receipt=receipt)
        except QueueDamaged as error:
            for job, _ in part:
                _error(handle, job, str(error))
            continue
        for (job, _), outcome in zip(part, made, strict=True):
            if outcome in _FAILURES:
                _error(handle, job, _FAILURES[outcome])


def version_of(handle: QueueHandle) -> str:
    """Returns the given version of BullMQ, else the version in the queue's meta, such as `bullmq:6.7.0`, or ''."""
    if handle.bullmq_version != "auto":
        return handle.bullmq_version
    version = handle.connection.call("HGET", handle.keys["meta"], "version")
    return version.decode() if version else ""


#: Why a job scheduler was not advanced, by the reply of the script.
_FAILURES: Final = {
    b"unknown": "neither the job nor its scheduler has a pattern or an interval",
    b"damaged": "the scheduler's key, or the key of all job schedulers, is of a wrong type",
}


def _error(handle: QueueHandle, job: ClaimedJob, why: str) -> None:
    remedy = "create it again, with BullQueue.upsert_scheduler, mode=schedule or in Node"
    log.error("queue %s: the job scheduler of job %s has stopped: %s; %s", handle.keys.queue, job.id, why, remedy)
