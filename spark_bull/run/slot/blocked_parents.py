"""Fails the attempts of parents that ended before their children did, as BullMQ does."""

from __future__ import annotations

from collections.abc import Sequence

from spark_bull.core.errors import UnrecoverableError
from spark_bull.core.model.outcomes import Lost, Outcomes
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.work.claim import read_claimed
from spark_bull.run.job.job_runner import Result
from spark_bull.run.job.outcome_policy import OutcomePolicy
from spark_bull.run.job.running_job import RunningJob


def fail_blocked(
    handle: QueueHandle, policy: OutcomePolicy, rejected: Outcomes, lost: Sequence[Lost], now: int
) -> Outcomes:
    """Returns the outcomes of jobs that could not complete because of their children; empty if there are none.

    A job with a failed child fails without a further attempt. rejected: their outcomes until now. now: time of Redis,
    ms since 1970.
    """
    outcomes = Outcomes(rejected.token, tokens=rejected.tokens)
    blocked = {one.id: one.why for one in lost if one.is_blocked}
    outcomes.add_follow_ups([one for one in rejected.follow_ups if one.of in blocked])
    for job in read_claimed(handle, list(blocked)):
        error = _blocked_error(job.id, blocked[job.id])
        policy.record(outcomes, handle.dialect, Result(RunningJob(job, handle), None, error), now)
    return outcomes


def _blocked_error(job_id: str, why: str) -> Exception:
    if why == "failed_children":
        return UnrecoverableError(f"Job {job_id} has a failed child and cannot complete")
    return RuntimeError(f"Job {job_id} has pending dependencies and cannot complete before its children")
