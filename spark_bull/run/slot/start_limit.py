"""Limits how often a job may start, as `maxStartedAttempts` of BullMQ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_bull.core.model.outcomes import ClaimedJob
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.schedule.advance import version_of


@dataclass(frozen=True)
class StartLimit:
    """Jobs that have started more than `most` times fail without being run.

    retries_last: whether a job that fails at its last permitted start is retried, as by BullMQ 5: the retry fails.
    """

    most: int
    retries_last: bool = False

    def checked(self, jobs: Sequence[ClaimedJob]) -> list[ClaimedJob]:
        """Returns the jobs; those that have started too often with a `deferred_failure`."""
        return [
            job._replace(deferred_failure="job started more than allowable limit")
            if job.attempts_started > self.most and job.deferred_failure is None
            else job
            for job in jobs
        ]

    def is_last(self, job: ClaimedJob) -> bool:
        """Whether the job must not be retried should this attempt fail."""
        return not self.retries_last and job.attempts_started >= self.most


def start_limit(handle: QueueHandle, most: int) -> StartLimit | None:
    """Returns the limit for jobs of a queue; None if `most` is 0: unlimited. Reads the queue's version of BullMQ."""
    if not most:
        return None
    return StartLimit(most, retries_last=handle.dialect.has("retry-at-limit", version_of(handle)))
