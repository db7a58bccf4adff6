"""What the forms of the page change. Each leads back to the page that has the form, with the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response

from spark_bull.errors import ConnectionLost, SparkBullError
from spark_bull.queue.bull_queue import BullQueue
from spark_bull.web.api.changes import promote_all, retry_all
from spark_bull.web.documents import DoneDocument, PromoteAllDocument, RetryAllDocument
from spark_bull.web.guard import unescaped
from spark_bull.web.page import links
from spark_bull.web.page.forms import Fields, Submitted
from spark_bull.web.page.rendering import Notice, go_to
from spark_bull.web.problems import Problem
from spark_bull.web.queue_access import ExistingQueue

#: Maximum number of jobs that one form changes; a further one changes the rest.
MOST_JOBS: Final = 10_000
#: Numbers with more digits are not exact in Lua.
_MAX_DIGITS: Final = 15

router: Final = APIRouter(include_in_schema=False)


@router.post("/queues/{queue}/jobs/{job_id}/actions/{action}")
def change_job(request: Request, queue: ExistingQueue, job_id: str, action: str, fields: Submitted) -> Response:
    """Changes one job."""
    change = _of(action, _JOB_ACTIONS)
    named = unescaped(job_id)
    back = fields.get("back") or links.job(queue.name, named)
    return _done(request, back, lambda: change(queue, named))


@router.post("/queues/{queue}/actions/{action}")
def change_queue(request: Request, queue: ExistingQueue, action: str, fields: Submitted) -> Response:
    """Changes the queue, or many of its jobs."""
    change = _of(action, _QUEUE_ACTIONS)
    return _done(request, fields.get("back") or links.queue(queue.name), lambda: change(queue, fields))


def _of(action: str, actions: Mapping[str, Callable[..., str]]) -> Callable[..., str]:
    if action not in actions:
        raise Problem(404, f"expected one of the actions {', '.join(actions)}, got: {action[:200]}")
    return actions[action]


def _done(request: Request, back: str, change: Callable[[], str]) -> Response:
    """Makes a change, and leads back with its result, or with the reason why it was not made."""
    try:
        return go_to(request, back, Notice(change()))
    except ConnectionLost:
        raise
    except SparkBullError as error:
        return go_to(request, back, Notice(f"Nothing was changed: {error}", is_error=True))


def _retry(queue: BullQueue, job_id: str) -> str:
    job = queue.job(job_id)
    queue.retry(job_id, job.state if job and job.state in queue.handle.dialect.retryable_states else "failed")
    return f"Job {job_id} waits for a worker again."


def _promote(queue: BullQueue, job_id: str) -> str:
    queue.promote(job_id)
    return f"Job {job_id} waits for a worker now."


def _remove(queue: BullQueue, job_id: str) -> str:
    queue.remove(job_id)
    return f"Job {job_id} was removed."


def _pause(queue: BullQueue, fields: Fields) -> str:
    queue.pause()
    return f"Queue {queue.name} is paused: workers claim no more jobs."


def _resume(queue: BullQueue, fields: Fields) -> str:
    queue.resume()
    return f"Queue {queue.name} is resumed: workers claim jobs again."


def _retry_all(queue: BullQueue, fields: Fields) -> str:
    state: Literal["completed", "failed"] = "completed" if fields.get("state") == "completed" else "failed"
    return _result("Retried", retry_all(queue, RetryAllDocument(state=state, limit=MOST_JOBS)))


def _promote_all(queue: BullQueue, fields: Fields) -> str:
    return _result("Promoted", promote_all(queue, PromoteAllDocument(limit=MOST_JOBS)))


def _clean(queue: BullQueue, fields: Fields) -> str:
    state = fields.get("state", "completed")
    removed = len(queue.clean(_integer(fields, "grace"), _integer(fields, "limit"), state))
    return f"Removed {_jobs(removed)} in {state}."


def _remove_scheduler(queue: BullQueue, fields: Fields) -> str:
    scheduler = fields.get("scheduler", "")
    is_removed = queue.remove_scheduler(scheduler)
    return f"Job scheduler {scheduler} was removed." if is_removed else f"Job scheduler {scheduler} was gone already."


def _result(verb: str, done: DoneDocument) -> str:
    text = f"{verb} {_jobs(done.jobs)}."
    if done.skipped:
        text += f" {_jobs(done.skipped)} had changed meanwhile, or were locked by a worker."
    return text + (" There are more: do it again." if done.more else "")


def _jobs(count: int) -> str:
    return f"{count:,} {'job' if count == 1 else 'jobs'}"


def _integer(fields: Fields, name: str) -> int:
    text = fields.get(name, "") or "0"
    if not text.isdecimal() or len(text) > _MAX_DIGITS:
        raise Problem(
            400,
            f"expected `{name}` to be a whole number of at most {_MAX_DIGITS} digits, got: {text[:200]!r}",
            field=name,
        )
    return int(text)


_JOB_ACTIONS: Final[Mapping[str, Callable[[BullQueue, str], str]]] = {
    "retry": _retry,
    "promote": _promote,
    "remove": _remove,
}
_QUEUE_ACTIONS: Final[Mapping[str, Callable[[BullQueue, Fields], str]]] = {
    "pause": _pause,
    "resume": _resume,
    "retry-all": _retry_all,
    "promote-all": _promote_all,
    "clean": _clean,
    "remove-scheduler": _remove_scheduler,
}
