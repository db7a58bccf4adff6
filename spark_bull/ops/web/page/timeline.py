"""What has become of a job, and when."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spark_bull.core.model.jobs import Job
from spark_bull.core.time_text import duration


@dataclass(frozen=True)
class Step:
    """A step in the life of a job. `time`: ms since 1970; `state`: the state that it led to; `note`: a detail."""

    what: str
    time: int
    state: str
    note: str = ""
    is_ahead: bool = False


def timeline(job: Job, now_ms: int) -> list[Step]:
    """The steps of a job in the order of their times, those ahead last."""
    return sorted(_steps(job, now_ms), key=lambda step: (step.is_ahead, step.time))


def _steps(job: Job, now: int) -> Iterator[Step]:
    if job.timestamp is not None:
        yield Step("Added", job.timestamp, "wait", _attempts_allowed(job))
    if job.run_at is not None:
        yield Step("Due" if job.run_at > now else "Was due", job.run_at, "delayed", _delay(job), job.run_at > now)
    elif job.delay and job.timestamp is not None:
        due = job.timestamp + job.delay
        yield Step("Delayed until", due, "delayed", _delay(job), due > now)
    if job.processed_on is not None:
        yield Step(_started(job), job.processed_on, "active", _waited(job))
    if job.finished_on is not None:
        what = {"completed": "Completed", "failed": "Failed"}.get(job.state or "", "Finished")
        yield Step(what, job.finished_on, job.state or "", _ran(job))


def _attempts_allowed(job: Job) -> str:
    if job.repeat_job_key:
        return f"by job scheduler {job.repeat_job_key}"
    return f"with parent {job.parent_key}" if job.parent_key else ""


def _delay(job: Job) -> str:
    return f"a delay of {duration(job.delay)}" if job.delay else ""


def _started(job: Job) -> str:
    made = job.attempts_started or job.attempts_made + (0 if job.finished_on else 1)
    return f"Attempt {made} started" if made > 1 else "Started"


def _waited(job: Job) -> str:
    by = f"by {job.processed_by}" if job.processed_by else ""
    if job.timestamp is None or job.processed_on is None or job.processed_on < job.timestamp or job.delay:
        return by
    waited = f"{duration(job.processed_on - job.timestamp)} after it was added"
    return f"{waited}, {by}" if by else waited


def _ran(job: Job) -> str:
    if job.processed_on is None or job.finished_on is None or job.finished_on < job.processed_on:
        return ""
    return f"took {duration(job.finished_on - job.processed_on)}"
