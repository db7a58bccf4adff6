"""The page of a job: its facts, its steps, the graph of its flow, and its fields as whole texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response

from spark_bull.core.clock import duration, epoch_ms
from spark_bull.core.model.job_json import parsed_opts
from spark_bull.core.model.read_jobs import FlowNode, Job
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.jobs.children import dependencies_of, named
from spark_bull.ops.web import links
from spark_bull.ops.web.access import Authorized
from spark_bull.ops.web.middleware import unescaped
from spark_bull.ops.web.page.queues import head_of
from spark_bull.ops.web.page.rendering import cut, encoded, laid_out, render, traces
from spark_bull.ops.web.problems import Problem
from spark_bull.ops.web.queue_access import AllQueues, ExistingQueue, Queues, existing_job

#: Sizes, pixels: of the box of a job, and of the space between two.
WIDTH: Final = 190
HEIGHT: Final = 46
_GAP_X: Final = 56
_GAP_Y: Final = 12
_MARGIN: Final = 4
#: Characters of the texts in a box; what is still too wide is not drawn.
_MOST_TITLE: Final = 17
_MOST_SUBTITLE: Final = 28

#: The states of jobs for what their parents know of them.
_STATES: Final = {"processed": "completed", "failed": "failed", "ignored": "failed", "unprocessed": "wait"}


@dataclass(frozen=True)
class Box:
    """A job in the graph. state: of the job, or what its parent knows; left: children not shown."""

    queue: str
    id: str
    title: str
    subtitle: str
    state: str
    x: float
    y: float
    is_current: bool
    left: int


@dataclass(frozen=True)
class Graph:
    """The boxes, each before its children, and the lines as paths of SVG. Sizes are pixels."""

    boxes: list[Box]
    lines: list[str]
    width: float
    height: float


def graph_of(root: FlowNode, current: tuple[str, str], is_shown: Callable[[str], bool]) -> Graph:
    """Lays out a flow. current: queue and id of the job of the page; is_shown: whether a queue's jobs may be shown."""
    boxes: list[Box] = []
    lines: list[str] = []
    rows = 0

    def place(node: FlowNode) -> float:
        """Places the jobs below a job, then the job in their middle; returns its y."""
        nonlocal rows
        at = len(boxes)
        x = _MARGIN + node.depth * (WIDTH + _GAP_X)
        below = [place(child) for child in node.children]
        if not below:
            below_y = _MARGIN + rows * (HEIGHT + _GAP_Y)
            rows += 1
        y = (below[0] + below[-1]) / 2 if below else below_y
        job = node.job if is_shown(node.queue) else None
        name = job.name if job and job.name != "__default__" else None
        state = (job and job.state) or _STATES.get(node.dependency or "", "")
        left = node.child_count - len(node.children)
        subtitle = _short(f"{node.queue} · {name}" if name else node.queue, _MOST_SUBTITLE)
        is_current = (node.queue, node.id) == current
        boxes.insert(
            at, Box(node.queue, node.id, _short(node.id, _MOST_TITLE), subtitle, state, x, y, is_current, left)
        )
        right, middle = x + WIDTH, y + HEIGHT / 2
        for child_y in below:
            end = child_y + HEIGHT / 2
            bend = right + _GAP_X / 2
            lines.append(f"M{right} {middle}C{bend} {middle} {bend} {end} {right + _GAP_X} {end}")
        return y

    place(root)
    width = max(box.x for box in boxes) + WIDTH + _MARGIN
    return Graph(boxes, lines, width, rows * (HEIGHT + _GAP_Y) - _GAP_Y + 2 * _MARGIN)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


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
