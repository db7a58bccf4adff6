"""The outcomes of jobs, as a test reads them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from spark_bull.core.dialects.base import Dialect
from spark_bull.core.error_text import reason_of
from spark_bull.core.model.outcomes import Outcomes
from spark_bull.run.job.job_runner import Result
from spark_bull.run.job.outcome_policy import OutcomePolicy
from spark_bull.run.job.running_job import RunningJob


@dataclass(frozen=True)
class JobOutcome:
    """What became of a job in its last attempt.

    Parameters:
      id: id of the job.
      name: its name.
      state: where it is afterwards: completed, failed, delayed, wait (it runs again at once) or waiting-children.
      returnvalue: what Redis stores for a completed job, opened and parsed; None for others.
      error: what the processor raised, with its trace; None for a completed job.
      attempts: number of calls of the processor in this call of `process_all`.
    """

    id: str
    name: str | None
    state: str
    returnvalue: Any = None
    error: BaseException | None = None
    attempts: int = 1

    @property
    def failed_reason(self) -> str | None:
        """The message of the error, as Redis stores it; None without an error."""
        return None if self.error is None else reason_of(self.error)


@dataclass
class Record:
    """The last outcome of each job, in the order in which they ended. attempts: of all jobs together."""

    by_id: dict[str, JobOutcome] = field(default_factory=dict)
    attempts: int = 0

    def add(self, outcome: JobOutcome) -> None:
        """Adds the outcome of one attempt."""
        before = self.by_id.pop(outcome.id, None)
        self.by_id[outcome.id] = outcome if before is None else replace(outcome, attempts=before.attempts + 1)
        self.attempts += 1


@dataclass(frozen=True)
class RecordingPolicy(OutcomePolicy):
    """Keeps the outcomes in `kept`. stop: called after `most` attempts."""

    most: int = 0
    stop: Callable[[], object] = lambda: None
    kept: Record = field(default_factory=Record)

    @property
    def is_full(self) -> bool:
        """Whether there were `most` attempts."""
        return self.kept.attempts >= self.most

    def record(self, outcomes: Outcomes, dialect: Dialect, result: Result, now: int) -> None:
        super().record(outcomes, dialect, result, now)
        job = result.job
        self.kept.add(
            JobOutcome(job.id, job.name, _state_in(outcomes, job.id), _returnvalue_in(outcomes, job), result.error)
        )
        if self.is_full:
            self.stop()


def _returnvalue_in(outcomes: Outcomes, job: RunningJob) -> Any:
    text = dict(zip(outcomes.completed_ids, outcomes.returnvalues, strict=True)).get(job.id)
    return json.loads(job.handle.opened("returnvalue", job.id, text)) if text else None


def _state_in(outcomes: Outcomes, job_id: str) -> str:
    """The state that the outcome of a job leads to."""
    if job_id in outcomes.completed_ids:
        return "completed"
    if any(job.id == job_id for job in outcomes.failed):
        return "failed"
    if job_id in outcomes.waiting_for_children:
        return "waiting-children"
    is_delayed = any(job.id == job_id for job in outcomes.delayed)
    return "delayed" if is_delayed or any(job.id == job_id and job.delay for job in outcomes.retried) else "wait"
