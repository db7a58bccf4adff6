"""The page of a job, and its fields as whole texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response

from spark_bull.core.clock import epoch_ms
from spark_bull.core.errors import JobMissing
from spark_bull.core.model.job_json import parsed_opts
from spark_bull.core.model.jobs import Job
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.jobs.children import dependencies_of, named
from spark_bull.core.time_text import duration
from spark_bull.ops.web.access import Authorized
from spark_bull.ops.web.guard import unescaped
from spark_bull.ops.web.page import links
from spark_bull.ops.web.page.flow_graph import Graph, graph_of
from spark_bull.ops.web.page.payloads import cut, laid_out, traces
from spark_bull.ops.web.page.queues import head_of
from spark_bull.ops.web.page.rendering import encoded, render
from spark_bull.ops.web.page.timeline import timeline
from spark_bull.ops.web.problems import Problem
from spark_bull.ops.web.queue_access import AllQueues, ExistingQueue, Queues

#: Lines of the log, and children, that the page shows.
_LOG_LINES: Final = 200
_CHILDREN: Final = 100
#: Levels and jobs of the graph of a flow.
_LEVELS: Final = 8
_FLOW_JOBS: Final = 60

router: Final = APIRouter(include_in_schema=False)


@router.get("/queues/{queue}/jobs/{job_id}")
def show_job(request: Request, caller: Authorized, queues: AllQueues, queue: ExistingQueue, job_id: str) -> Response:
    """A job: its timeline, payload, result, log and family."""
    job = existing_job(queue, unescaped(job_id))
    return render(
        request,
        "job.html",
        queue=head_of(queue),
        job=job,
        timeline=timeline(job, epoch_ms()),
        facts=_facts(job),
        progress=_progress(job),
        failed_reason=cut(job.failed_reason),
        data=cut(laid_out(job.data_text)),
        returnvalue=cut(laid_out(job.returnvalue_text)),
        opts=cut(laid_out(job.opts_text)),
        stacktrace=cut(traces(job.stacktrace)),
        logs=_log(queue, job.id),
        family=_family(queues, queue, job),
        events_url=links.events(queue.name),
    )


@router.get("/queues/{queue}/jobs/{job_id}/raw/{field}")
def show_field(request: Request, caller: Authorized, queue: ExistingQueue, job_id: str, field: str) -> Response:
    """A field of a job, or its log, whole."""
    if field not in _FIELDS:
        raise Problem(404, f"expected one of the fields {', '.join(_FIELDS)}, got: {field[:200]}")
    return PlainTextResponse(encoded(_FIELDS[field](queue, existing_job(queue, unescaped(job_id)))))


_FIELDS: Final[Mapping[str, Callable[[BullQueue, Job], str]]] = {
    "data": lambda _, job: laid_out(job.data_text),
    "returnvalue": lambda _, job: laid_out(job.returnvalue_text),
    "opts": lambda _, job: laid_out(job.opts_text),
    "failedReason": lambda _, job: job.failed_reason or "",
    "stacktrace": lambda _, job: traces(job.stacktrace),
    "logs": lambda queue, job: "\n".join(queue.logs(job.id)),
}


def existing_job(queue: BullQueue, job_id: str) -> Job:
    """A job of a queue. Raises JobMissing."""
    job = queue.job(job_id)
    if job is None:
        raise JobMissing(
            f"job {job_id} of queue {queue.name} does not exist: it was removed, or was never there",
            queue=queue.name,
            job_id=job_id,
        )
    return job


def _facts(job: Job) -> list[tuple[str, str]]:
    given = (parsed_opts(job.opts_text) or {}).get("attempts")
    attempts = max(1, given) if isinstance(given, int) else 1
    facts = {
        "Attempts": f"{job.attempts_made} of {attempts}",
        "Priority": str(job.priority) if job.priority else "",
        "Delay": duration(job.delay) if job.delay else "",
        "Stalled": f"{job.stalled_counter} times" if job.stalled_counter else "",
        "Returned": f"{job.returned_counter} times" if job.returned_counter else "",
        "Processed by": job.processed_by or "",
        "Deduplication id": job.deduplication_id or "",
        "Job scheduler": job.repeat_job_key or "",
    }
    return [(label, value) for label, value in facts.items() if value]


def _progress(job: Job) -> dict[str, Any] | None:
    """The progress: a number from 0 to 100, or anything else as text."""
    value: Any = job.progress
    if value in (None, 0, "", {}):
        return None
    is_percent = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 100
    return {"percent": value if is_percent else None, "text": cut(laid_out(job.progress_text)).shown}


def _log(queue: BullQueue, job_id: str) -> dict[str, Any]:
    """The last rows of a log, the position of the first of them, and the number of all rows."""
    total = int(queue.handle.connection.call("LLEN", queue.handle.keys.logs(job_id)))
    first = max(0, total - _LOG_LINES)
    return {"rows": queue.logs(job_id, first, total - 1) if total else [], "first": first, "total": total}


def _family(queues: Queues, queue: BullQueue, job: Job) -> dict[str, Any] | None:
    """The parent and the first children of a job, and the numbers of all children by state; None if it has none."""
    if not queue.handle.dialect.has("flows"):
        return None
    counts = queue.dependency_counts(job.id)
    children = list(islice(dependencies_of(queue.handle, [job.id]), _CHILDREN)) if any(counts.values()) else []
    parent = named(queue.handle.keys, job.parent_key) if job.parent_key else None
    if parent is None and not children:
        return None
    return {
        "parent": parent,
        "children": children,
        "counts": counts,
        "left": sum(counts.values()) > len(children),
        "graph": _graph(queues, queue, job),
    }


def _graph(queues: Queues, queue: BullQueue, job: Job) -> Graph | None:
    """The graph of the flow from its first job on, or from this one, if it would not be among the jobs shown."""

    def is_shown(name: str) -> bool:
        # The name of a queue with another prefix has a colon.
        return ":" not in name and queues.selects(name)

    top, first = queue, job
    for _ in range(_LEVELS):
        above = named(top.handle.keys, first.parent_key) if first.parent_key else None
        parent_queue = queues.open(above[0]) if above and is_shown(above[0]) else None
        parent = parent_queue.job(above[1]) if parent_queue and above else None
        if parent_queue is None or parent is None:
            break
        top, first = parent_queue, parent
    for start, start_id in ((top, first.id), (queue, job.id)):
        flow = start.get_flow(start_id, _LEVELS, _FLOW_JOBS)
        if flow and any((node.queue, node.id) == (queue.name, job.id) for node in flow.walk()):
            return graph_of(flow, (queue.name, job.id), is_shown)
    return None
