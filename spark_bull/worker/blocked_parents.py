"""Parents that ended before their children did: BullMQ fails such an attempt."""

from __future__ import annotations

from collections.abc import Sequence

from spark_bull.errors import UnrecoverableError
from spark_bull.outcomes import Lost, Outcomes
from spark_bull.queue.claim import read_claimed
from spark_bull.queue.handle import QueueHandle
from spark_bull.worker.job_runner import OutcomePolicy, Result
from spark_bull.worker.running_job import RunningJob


def fail_blocked(handle: QueueHandle, rules: OutcomePolicy, token: str, lost: Sequence[Lost], now: int) -> Outcomes:
    """The outcomes of jobs that could not complete because of their children; empty when there are none of these.

    With a failed child the job fails for good, whatever attempts are left. now: Redis' clock, ms since 1970.
    """
    outcomes = Outcomes(token)
    blocked = {one.id: one.why for one in lost if one.is_blocked}
    for job in read_claimed(handle, list(blocked)):
        error = _error_of(job.id, blocked[job.id])
        rules.note(outcomes, handle.dialect, Result(RunningJob(job, handle), None, error), now)
    return outcomes


def _error_of(job_id: str, why: str) -> Exception:
    if why == "failed_children":
        return UnrecoverableError(f"Job {job_id} has a failed child: a parent can't complete then")
    return RuntimeError(f"Job {job_id} has pending dependencies: a parent can't complete before its children")
