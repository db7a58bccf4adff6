"""The job in the path of a request, and the version of it that a change expects."""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b
from typing import Annotated

from fastapi import Depends, Header, Path

from spark_bull.core.model.jobs import Job
from spark_bull.ops.web.middleware import unescaped
from spark_bull.ops.web.problems import Problem
from spark_bull.ops.web.queue_access import ExistingQueue


def existing_job(
    queue: ExistingQueue, id: Annotated[str, Path(description="id of the job", min_length=1, examples=["42"])]
) -> Job:
    """Dependency: the job in the path. Raises Problem 404."""
    job_id = unescaped(id)
    job = queue.job(job_id)
    if job is None:
        raise Problem(404, f"expected a job {job_id[:200]} in queue {queue.name}, found none")
    return job


ExistingJob = Annotated[Job, Depends(existing_job)]


def expected_job(
    job: ExistingJob,
    if_match: Annotated[
        str | None, Header(description="ETag of the job, as GET returns it: the request is refused if it has changed")
    ] = None,
) -> Job:
    """Dependency: the job in the path, in the version of the header If-Match. Raises Problem 404 or 409."""
    if if_match not in (None, "*") and etag_of(job) not in [tag.strip() for tag in (if_match or "").split(",")]:
        raise Problem(
            409,
            f"expected job {job.id} of queue {job.queue} to be as in If-Match, it has changed and is "
            f"{job.state or 'in no state'}: read it again",
        )
    return job


ExpectedJob = Annotated[Job, Depends(expected_job)]


def etag_of(job: Job) -> str:
    """A text that changes when the job does, except for its progress."""
    digest = blake2b(repr(replace(job, progress_text=None)).encode("utf-8", "surrogatepass"), digest_size=12)
    return f'"{digest.hexdigest()}"'
