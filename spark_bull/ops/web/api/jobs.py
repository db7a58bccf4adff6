"""Jobs: pages, search, one job with its log and family, and adding jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Annotated, Any, Final, Literal, NamedTuple

from fastapi import APIRouter, Depends, Query, Request
from pydantic import Discriminator, Field, Tag

from spark_bull.core.keys import QueueKeys
from spark_bull.core.model.read_jobs import FlowNode, Job
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.handle.handle import DEFAULT_DEPTH
from spark_bull.core.queue.jobs.children import dependencies_of, named
from spark_bull.core.queue.jobs.portions import JobFilter, Portion, read_portion
from spark_bull.ops.web import documents
from spark_bull.ops.web.cursors import Position, cursor_of, position_of
from spark_bull.ops.web.middleware import unescaped
from spark_bull.ops.web.problems import MANY, ONE
from spark_bull.ops.web.queue_access import AllQueues, ExistingJob, ExistingQueue, QueueName, Queues, etag_of
from spark_bull.ops.web.shown import Json, document, json_value

router = APIRouter(tags=["jobs"])

#: Maximum number of jobs of a request that adds some.
MAX_NEW: Final = 1_000
#: Queues in which one request looks for jobs.
_QUEUES_PER_PAGE: Final = 20

Limit = Annotated[int, Query(ge=1, le=200, description="maximum number of jobs")]
Create = Annotated[bool, Query(description="whether to create a queue that does not exist")]
New = Annotated[
    Annotated[documents.NewJobDocument, Tag(ONE)]
    | Annotated[list[documents.NewJobDocument], Tag(MANY), Field(min_length=1, max_length=MAX_NEW)],
    Discriminator(lambda body: MANY if isinstance(body, list) else ONE),
]


class Wanted(NamedTuple):
    """The parameters of a page of jobs. query: those that a cursor is valid for."""

    query: Mapping[str, Any]
    states: Sequence[str]
    filter: JobFilter
    descending: bool
    limit: int
    cursor: str | None

    def position(self) -> Position | None:
        """Where the page begins; None: at the beginning. Raises Problem."""
        return position_of(self.cursor, self.query) if self.cursor is not None else None

    def portion(self, queue: BullQueue, position: Position | None) -> Portion:
        place = position.place if position else None
        return read_portion(
            queue.handle, self.states, place, self.limit, wanted=self.filter, descending=self.descending
        )

    def page(self, jobs: Sequence[Job], rest: Position | None) -> Json:
        return Json({"jobs": document(jobs), "next": rest and cursor_of(rest, self.query)})


def wanted(
    request: Request,
    state: Annotated[list[documents.State] | None, Query(description="only these states; default: all")] = None,
    name: Annotated[str | None, Query(max_length=10_000, description="only jobs of this name")] = None,
    text: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=1_000,
            description="only jobs with this text, in any case, in id, name, payload, return value or failure",
        ),
    ] = None,
    reason: Annotated[
        str | None, Query(min_length=1, max_length=1_000, description="only jobs with this text in their failure")
    ] = None,
    since: Annotated[
        int | None,
        Query(alias="from", ge=0, le=2**53 - 1, description="only jobs that ended, are due, or else were added then"),
    ] = None,
    until: Annotated[int | None, Query(alias="to", ge=0, le=2**53 - 1, description="or before then")] = None,
    order: Annotated[
        Literal["asc", "desc"], Query(description="asc: in the order in which jobs come next, or have ended")
    ] = "asc",
    limit: Limit = 50,
    cursor: Annotated[
        str | None, Query(max_length=30_000, description="`next` of the page before, with the same parameters")
    ] = None,
) -> Wanted:
    """Dependency: the parameters of a page."""
    states = list(dict.fromkeys(state or ()))
    query = {
        "path": request.url.path,
        "state": states,
        "name": name,
        "text": text,
        "reason": reason,
        "from": since,
        "to": until,
        "order": order,
    }
    return Wanted(query, states, JobFilter(name, text, since, until, reason), order == "desc", limit, cursor)


Page = Annotated[Wanted, Depends(wanted)]


@router.get("/queues/{queue}/jobs", response_model=documents.JobPage)
def list_jobs(queue: ExistingQueue, page: Page) -> Json:
    """Reads jobs of a queue, state by state, in portions that keep Redis free.

    A page with conditions can have fewer jobs than asked for, even none: go on until `next` is null. No job that stays
    in its state is missing; one can be there twice when jobs are added or removed meanwhile.
    """
    portion = page.portion(queue, page.position())
    return page.page(portion.jobs, _following(queue, portion))


@router.get("/queues/{queue}/search", response_model=documents.JobPage)
def search_jobs(queue: ExistingQueue, page: Page) -> Json:
    """Searches jobs as `…/jobs` does; the first page begins with the job whose id is `text`, if there is one."""
    position, text = page.position(), page.filter.text
    found = queue.job(text) if position is None and text else None
    if found is None or (page.states and found.state not in page.states):
        portion = page.portion(queue, position)
        return page.page(portion.jobs, _following(queue, portion))
    if page.limit == 1:
        return page.page([found], Position(queue.name))
    portion = page._replace(limit=page.limit - 1).portion(queue, position)
    return page.page([found, *(job for job in portion.jobs if job.id != found.id)], _following(queue, portion))


def _following(queue: BullQueue, portion: Portion) -> Position | None:
    return Position(queue.name, portion.next) if portion.next else None


@router.get("/jobs", response_model=documents.JobPage)
def list_all_jobs(queues: AllQueues, page: Page) -> Json:
    """Reads jobs of all queues, queue by queue, as `/api/queues/{queue}/jobs` does."""
    return page.page(*jobs_of_queues(queues, queues.names(), page))


def jobs_of_queues(queues: Queues, names: Sequence[str], page: Wanted) -> tuple[list[Job], Position | None]:
    """A page of the jobs of these queues, whose names are sorted, and where the next one begins."""
    position, found = page.position(), list[Job]()
    names = [name for name in names if position is None or name >= position.queue]
    for number, name in enumerate(names):
        if number == _QUEUES_PER_PAGE or len(found) == page.limit:
            return found, Position(name)
        queue = queues.open(name)
        known = [state for state in page.states if state in queue.handle.dialect.states]
        if page.states and not known:
            continue
        here = position if position and position.queue == name else None
        portion = page._replace(states=known, limit=page.limit - len(found)).portion(queue, here)
        found += portion.jobs
        if portion.next:
            return found, Position(name, portion.next)
    return found, None


@router.get("/queues/{queue}/jobs/{id}", response_model=documents.JobDocument)
def read_job(job: ExistingJob) -> Json:
    """Reads one job. Send the header ETag as If-Match with a change, which is refused if the job has changed."""
    return Json(document(job), headers={"ETag": etag_of(job)})


@router.get("/queues/{queue}/jobs/{id}/logs", response_model=documents.LogDocument)
def read_log(
    queue: ExistingQueue,
    job: ExistingJob,
    start: Annotated[int, Query(ge=0, le=2**31 - 1, description="position of the first row")] = 0,
    limit: Annotated[int, Query(ge=1, le=1_000, description="maximum number of rows")] = 100,
) -> Json:
    """Reads rows of a job's log, the oldest first."""
    rows = queue.logs(job.id, start, start + limit - 1)
    total = queue.handle.connection.call("LLEN", queue.handle.keys.logs(job.id))
    return Json({"start": start, "rows": rows, "total": total})


@router.get("/queues/{queue}/jobs/{id}/family", response_model=documents.FamilyDocument)
def read_family(
    queue: ExistingQueue,
    job: ExistingJob,
    limit: Annotated[int, Query(ge=1, le=1_000, description="maximum number of children")] = 100,
) -> Json:
    """Reads the parent and the children of a job (BullMQ), the unprocessed ones first."""
    counts = queue.dependency_counts(job.id)
    found = [
        {
            "queue": child.child_queue,
            "id": child.child_id,
            "state": child.state,
            "value": json_value(child.value) if child.state == "processed" else child.value,
        }
        for child in islice(dependencies_of(queue.handle, [job.id]), limit)
    ]
    return Json({"parent": _parent(queue.handle.keys, job), "counts": counts, "children": found})


@router.get("/queues/{queue}/jobs/{id}/flow", response_model=documents.FlowDocument)
def read_flow(
    queue: ExistingQueue,
    queues: AllQueues,
    job: ExistingJob,
    maxDepth: Annotated[int, Query(ge=1, le=100, description="maximum number of levels")] = DEFAULT_DEPTH,
    maxJobs: Annotated[int, Query(ge=1, le=1_000, description="maximum number of jobs")] = 200,
) -> Json:
    """Reads a job with its children, and theirs (BullMQ), each job before its children.

    `job` is null for a job that was removed, and in a queue that this server does not show.
    """
    found = queue.get_flow(job.id, maxDepth, maxJobs)
    return Json({"jobs": [_flow_row(queues, node) for node in (found.walk() if found else ())]})


def _flow_row(queues: Queues, node: FlowNode) -> dict[str, Any]:
    return {
        "queue": node.queue,
        "id": node.id,
        "depth": node.depth,
        "parent": None if node.parent_id is None else {"queue": node.parent_queue, "id": node.parent_id},
        "dependency": node.dependency,
        "childCount": node.child_count,
        # The name of a queue with another prefix has a colon.
        "job": document(node.job) if ":" not in node.queue and queues.selects(node.queue) else None,
    }


def _parent(keys: QueueKeys, job: Job) -> dict[str, str] | None:
    if not job.parent_key:
        return None
    queue, job_id = named(keys, job.parent_key)
    return {"queue": queue, "id": job_id}


@router.post("/queues/{queue}/jobs", status_code=201)
def add_jobs(
    queue: QueueName,
    queues: AllQueues,
    new: New,
    create: Create = False,
) -> documents.AddedDocument:
    """Adds one job, or up to 1,000 in their order, after all of them were checked."""
    return _added(queues, unescaped(queue), new if isinstance(new, list) else [new], create)


@router.post("/jobs", status_code=201)
def add_job(queues: AllQueues, new: documents.QueuedJobDocument, create: Create = False) -> documents.AddedDocument:
    """Adds a job to the queue that it names."""
    return _added(queues, new.queue, [new], create)


def _added(queues: Queues, name: str, new: Sequence[documents.NewJobDocument], create: bool) -> documents.AddedDocument:
    queue = queues.open(name) if create else queues.existing(name)
    for job in new:
        _check_parent(queues, job)
    added = queue.add_many(job.new_job() for job in new)
    if create:
        queues.forget_names()
    return documents.AddedDocument(
        ids=added.ids, added=added.added, duplicates=added.duplicates, deduplicated=added.deduplicated
    )


def _check_parent(queues: Queues, job: documents.NewJobDocument) -> None:
    """Raises Problem 404 for a parent in a queue that the server does not show: adding the job would change it."""
    for parent in (job.parent, (job.opts or {}).get("parent")):
        name = parent.get("queue") if isinstance(parent, Mapping) else None
        if isinstance(name, str):
            queues.check_shown(name)
