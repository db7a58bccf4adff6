"""What the forms of the page change, in a job, a queue, or selected jobs. Each leads back to its page."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import unquote

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import ValidationError

from spark_bull.core.errors import ConnectionLost, DialectError, JobError, SparkBullError, WrongState
from spark_bull.core.model.jobs import NewJob
from spark_bull.core.model.read_jobs import Change
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.ops.web import links
from spark_bull.ops.web.api.activity import aborted_write
from spark_bull.ops.web.api.changes import change, start_change
from spark_bull.ops.web.bulk_changes import AllChanges, BulkChanges
from spark_bull.ops.web.documents import ChangesDocument, JobPatch
from spark_bull.ops.web.middleware import unescaped
from spark_bull.ops.web.page.questions import (
    CHANGES_OF_ALL,
    JOB_QUESTIONS,
    QUEUE_QUESTIONS,
    Fields,
    Question,
    Submitted,
    ask,
    ask_job,
    ask_queue,
    chosen,
    filter_of,
    integer_of,
    json_of,
    text_of,
)
from spark_bull.ops.web.page.rendering import Notice, go_to, laid_out
from spark_bull.ops.web.problems import Problem
from spark_bull.ops.web.queue_access import AllQueues, ExistingQueue, Queues, etag_of, existing_job

router: Final = APIRouter(include_in_schema=False)


@router.post("/queues/{queue}/jobs/{job_id}/actions/{action}")
def change_job(
    request: Request, queue: ExistingQueue, queues: AllQueues, job_id: str, action: str, fields: Submitted
) -> Response:
    """Changes one job."""
    change = chosen(action, _JOB_ACTIONS)
    named = unescaped(job_id)
    if action == "remove":
        queues.check_removable(queue, named)
    back = fields.get("back") or links.job(queue.name, named)
    again = partial(ask_job, request, queue, named, action, fields) if action in JOB_QUESTIONS else None
    return _done(request, back, lambda: change(queue, named, fields), again)


@router.post("/queues/{queue}/actions/{action}")
def change_queue(
    request: Request, queue: ExistingQueue, queues: AllQueues, changes: AllChanges, action: str, fields: Submitted
) -> Response:
    """Changes the queue, or many of its jobs."""
    if action in CHANGES_OF_ALL:
        return _begin_change(request, queue, queues, changes, action, fields)
    change = chosen(action, _QUEUE_ACTIONS)
    again = partial(ask_queue, request, queue, action, fields) if action in QUEUE_QUESTIONS else None
    answer = _done(request, fields.get("back") or links.queue(queue.name), lambda: change(queue, fields), again)
    if action == "obliterate":
        queues.forget_names()
    return answer


def _begin_change(
    request: Request, queue: BullQueue, queues: Queues, changes: BulkChanges, action: str, fields: Fields
) -> Response:
    """Begins a change of all jobs that were found, and leads to its progress."""
    given = {name: fields[name] for name in ("state", "name", "text", "reason") if fields.get(name)}
    which = filter_of(fields)
    times = {"from": which.since, "to": which.until}
    try:
        wanted = ChangesDocument.model_validate({"action": CHANGES_OF_ALL[action], **given, **times})
        write_id = start_change(queue, queues, changes, wanted)
    except (Problem, DialectError, ValidationError) as error:
        text = error.detail if isinstance(error, Problem) else str(error)
        return go_to(request, fields.get("back", ""), Notice(f"Nothing was changed: {text}", is_error=True))
    return go_to(request, links.write(queue.name, write_id), Notice("The change has begun."))


def _abort(queue: BullQueue, fields: Fields) -> str:
    record = aborted_write(queue, fields.get("write", ""))
    return f"The write is {record.state}: {_number_of_jobs(record.changed)} changed."


def _done(request: Request, back: str, change: Callable[[], str], again: Callable[[str], Response] | None) -> Response:
    """Makes a change, and leads back with its result, or with the reason why it was not made.

    again: asks again after wrong input, so that the rest of it need not be typed again.
    """
    try:
        return go_to(request, back, Notice(change()))
    except ConnectionLost:
        raise
    except (Problem, SparkBullError) as error:
        reason = error.detail if isinstance(error, Problem) else str(error)
        if again and not isinstance(error, JobError):
            return again(reason)
        return go_to(request, back, Notice(f"Nothing was changed: {reason}", is_error=True))


def _retry(queue: BullQueue, job_id: str, fields: Fields) -> str:
    job = queue.job(job_id)
    queue.retry(job_id, job.state if job and job.state in queue.handle.dialect.retryable_states else "failed")
    return f"Job {job_id} waits for a worker again."


def _changed(change: Callable[..., object], text: str) -> Callable[..., str]:
    """Returns an action that calls `change` with the queue, and the id of a job if there is one, and says `text`."""

    def act(queue: BullQueue, *of_job: Any) -> str:
        *ids, _ = of_job
        change(queue, *ids)
        return text.format(*ids, queue=queue.name)

    return act


def _change(queue: BullQueue, job_id: str, fields: Fields) -> str:
    job = existing_job(queue, job_id)
    if etag_of(job) != fields.get("etag"):
        raise WrongState(
            f"job {job_id} has changed meanwhile, and is {job.state or 'in no state'}: look at it again",
            queue=queue.name,
            job_id=job_id,
        )
    given: dict[str, Any] = {}
    if "data" in fields and text_of(fields, "data") != laid_out(job.data_text):
        given["data"] = json_of(fields, "data")
    if (delay := integer_of(fields, "delay")) is not None:
        given["delay"] = delay
    if (priority := integer_of(fields, "priority")) is not None and priority != (job.priority or 0):
        given["priority"] = priority
    if not given:
        return f"Job {job_id} stays as it is."
    change(queue, job, JobPatch(**given))
    return f"Job {job_id} has changed: {', '.join(given)}."


def _add(queue: BullQueue, fields: Fields) -> str:
    numbers = {name: integer_of(fields, name) for name in ("delay", "attempts", "priority")}
    texts = {name: fields.get(name) or None for name in ("name", "job_id")}
    added = queue.add_many([NewJob(json_of(fields, "data"), **texts, **numbers)])  # type: ignore[arg-type]
    return f"Job {added.ids[0]} was added." if added.added else f"Job {added.ids[0]} exists already; none was added."


def _limits(queue: BullQueue, fields: Fields) -> str:
    limits = {name: integer_of(fields, name) for name in ("concurrency", "max", "duration_ms")}
    if any(limit is not None for limit in limits.values()):
        queue.set_limits(**limits)
    queue.remove_limits(concurrency=limits["concurrency"] is None, rate=limits["max"] is None)
    return f"The limits of {queue.name} are set."


def _drain(queue: BullQueue, fields: Fields) -> str:
    return f"Removed {_number_of_jobs(queue.drain(delayed='delayed' in fields))} from {queue.name}."


def _obliterate(queue: BullQueue, fields: Fields) -> str:
    if fields.get("confirm", "").strip() != queue.name:
        raise Problem(400, f"expected the name of the queue, {queue.name}: nothing was changed", field="confirm")
    queue.obliterate(force="force" in fields)
    return f"Queue {queue.name} was deleted."


def _clean(queue: BullQueue, fields: Fields) -> str:
    state = fields.get("state", "completed")
    removed = len(queue.clean(integer_of(fields, "grace") or 0, integer_of(fields, "limit") or 0, state))
    return f"Removed {_number_of_jobs(removed)} in {state}."


def _remove_scheduler(queue: BullQueue, fields: Fields) -> str:
    scheduler = fields.get("scheduler", "")
    is_removed = queue.remove_scheduler(scheduler)
    return f"Job scheduler {scheduler} was removed." if is_removed else f"Job scheduler {scheduler} was gone already."


def _run_scheduler(queue: BullQueue, fields: Fields) -> str:
    return f"Job {queue.run_scheduler(fields.get('scheduler', ''))} was added, and runs as soon as a worker is free."


def _number_of_jobs(count: int, which: str = "") -> str:
    return f"{count:,} {which}{'job' if count == 1 else 'jobs'}"


_JOB_ACTIONS: Final[Mapping[str, Callable[[BullQueue, str, Fields], str]]] = {
    "retry": _retry,
    "promote": _changed(BullQueue.promote, "Job {} waits for a worker now."),
    "remove": _changed(BullQueue.remove, "Job {} was removed."),
    "change": _change,
}
_QUEUE_ACTIONS: Final[Mapping[str, Callable[[BullQueue, Fields], str]]] = {
    "add": _add,
    "limits": _limits,
    "pause": _changed(BullQueue.pause, "Queue {queue} is paused: workers claim no more jobs."),
    "resume": _changed(BullQueue.resume, "Queue {queue} is resumed: workers claim jobs again."),
    "abort": _abort,
    "clean": _clean,
    "drain": _drain,
    "obliterate": _obliterate,
    "run-scheduler": _run_scheduler,
    "remove-scheduler": _remove_scheduler,
}


#: The actions, and what they have done.
_ACTIONS: Final = {"retry": "Retried", "promote": "Promoted", "remove": "Removed"}
#: The path of a job: the name of a field, and its parts between slashes.
_PARTS: Final = 5


@router.post("/jobs/actions/{action}")
def change_selected(request: Request, queues: AllQueues, action: str, fields: Submitted) -> Response:
    """Changes the selected jobs; asks first before they are removed."""
    done, selected = chosen(action, _ACTIONS), _selected(fields)
    number, back = sum(map(len, selected.values())), fields.get("back", "")
    if not selected:
        return go_to(request, back, Notice("Nothing was changed: no job is selected.", is_error=True))
    if action == "remove" and "confirmed" not in fields:
        text = "Their data, results and logs are deleted, and their children. This can't be undone."
        title = f"Remove {_number_of_jobs(number, 'selected ')}?"
        hidden = {name: value for name, value in fields.items() if name not in ("csrf", "back")}
        return ask(request, Question(title, text, "Remove", (), hidden, True), links.selection(action), fields)
    state = fields.get("state", "failed")
    outcomes: Counter[str] = Counter()
    for name, ids in selected.items():
        queue = queues.existing(name)
        for job_id in ids if action == "remove" else ():
            queues.check_removable(queue, job_id)
        changes = [Change(job_id, action, state=state if action == "retry" else None) for job_id in ids]
        outcomes.update(changed.outcome for changed in queue.manage(changes))
    skipped = ", ".join(
        f"{count} {outcome.replace('_', ' ')}" for outcome, count in outcomes.items() if outcome != "done"
    )
    text = f"{done} {outcomes['done']:,} of {number:,} jobs{f': {skipped}' if skipped else ''}."
    return go_to(request, back, Notice(text, is_error=not outcomes["done"]))


def _selected(fields: Fields) -> dict[str, list[str]]:
    """The ids of the selected jobs by queue: the names of their fields are as `links.selected`."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in fields:
        parts = name.split("/")
        if len(parts) == _PARTS and (parts[0], parts[1], parts[3]) == ("", "queues", "jobs"):
            found[unquote(parts[2])].append(unquote(parts[4]))
    return found
