"""Pages that ask before something is changed, or for what is to be changed, and the fields of their forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar
from urllib.parse import parse_qsl

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from spark_bull.core.clock import monotonic_s
from spark_bull.core.model.job_json import parsed_opts, strict_json
from spark_bull.core.model.read_jobs import Job
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.jobs.portions import JobFilter
from spark_bull.core.queue.manage.bulk import matching_ids
from spark_bull.ops.web import links
from spark_bull.ops.web.access import Authorized, access_of
from spark_bull.ops.web.middleware import unescaped
from spark_bull.ops.web.page.jobs import time_of_input
from spark_bull.ops.web.page.rendering import laid_out, render
from spark_bull.ops.web.problems import Problem
from spark_bull.ops.web.queue_access import READING_S, ExistingQueue, etag_of, existing_job

#: Numbers with more digits are not exact in Lua.
_MAX_DIGITS: Final = 15

Fields = Mapping[str, str]
T = TypeVar("T")


class Field(NamedTuple):
    """A field of a form that asks. `long`: a text of several lines; `choices`: values and their labels."""

    name: str
    label: str
    value: str = ""
    kind: Literal["text", "number", "long", "check"] = "text"
    choices: tuple[tuple[object, str], ...] = ()


async def _fields(request: Request) -> Fields:
    """The fields of a form of this page. Raises Problem 401 or 403 for a caller who may not write, or another form."""
    body = (await request.body()).decode("utf-8", "replace")
    fields = dict(parse_qsl(body, keep_blank_values=True))
    access = access_of(request)
    access.check(request, access.caller(request, None), csrf=fields.get("csrf", ""))
    return fields


Submitted = Annotated[Fields, Depends(_fields)]


def text_of(fields: Fields, name: str) -> str:
    """A text with the ends of lines that it had before a browser sent it."""
    return fields.get(name, "").replace("\r\n", "\n")


def integer_of(fields: Fields, name: str) -> int | None:
    """A whole number, or None for an empty field. Raises Problem 400."""
    text = fields.get(name, "").strip()
    if not text:
        return None
    if not text.isdecimal() or len(text) > _MAX_DIGITS:
        raise Problem(
            400,
            f"expected `{name}` to be a whole number of at most {_MAX_DIGITS} digits, got: {text[:200]!r}",
            field=name,
        )
    return int(text)


def json_of(fields: Fields, name: str) -> Any:
    """What a field with JSON holds. Raises Problem 400."""
    try:
        return strict_json(fields.get(name, ""))
    except (ValueError, RecursionError) as error:
        raise Problem(
            400, f"expected `{name}` to be JSON, such as a text in double quotes: {error}", field=name
        ) from None


#: The actions that change all jobs that a search finds, and the change.
CHANGES_OF_ALL: Final = {"retry-all": "retry", "promote-all": "promote", "remove-all": "remove"}
#: What a search looks for, as a question says it.
_CONDITIONS: Final = {"name": "the name", "text": "the text", "reason": "the reason", "from": "a time from", "to": "to"}
_AGES: Final = (
    (0, "of any age"),
    (3_600_000, "older than 1 hour"),
    (86_400_000, "older than 1 day"),
    (7 * 86_400_000, "older than 7 days"),
    (30 * 86_400_000, "older than 30 days"),
)
#: States of jobs that have not started, whose priority and delay can be changed.
_MOVABLE: Final = ("wait", "paused", "prioritized", "delayed")
#: Longer payloads are not changed by a form, characters.
_MOST_DATA: Final = 1_000_000

router: Final = APIRouter(include_in_schema=False)


class Question(NamedTuple):
    """What is asked. `hidden`: further fields of the form; `back`: the page after it, if not the one before."""

    title: str
    text: str
    verb: str
    fields: tuple[Field, ...] = ()
    hidden: Mapping[str, str] = {}
    is_dangerous: bool = False
    back: str = ""


@router.get("/queues/{queue}/jobs/{job_id}/actions/{action}")
def ask_about_job(request: Request, caller: Authorized, queue: ExistingQueue, job_id: str, action: str) -> Response:
    """Asks whether, or how, to change a job."""
    return ask_job(request, queue, unescaped(job_id), action, request.query_params)


@router.get("/queues/{queue}/actions/{action}")
def ask_about_queue(request: Request, caller: Authorized, queue: ExistingQueue, action: str) -> Response:
    """Asks whether, or how, to change a queue or many jobs."""
    return ask_queue(request, queue, action, request.query_params)


def ask_job(request: Request, queue: BullQueue, job_id: str, action: str, given: Fields, error: str = "") -> Response:
    """Asks about a job; again with what was given, if that is wrong. Raises Problem 404 and JobMissing."""
    question = chosen(action, JOB_QUESTIONS)(queue, job_id)
    return ask(request, question, links.job_action(queue.name, job_id, action), given, error)


def ask_queue(request: Request, queue: BullQueue, action: str, given: Fields, error: str = "") -> Response:
    """Asks about a queue; again with what was given, if that is wrong. Raises Problem 404."""
    question = chosen(action, QUEUE_QUESTIONS)(queue, given)
    return ask(request, question, links.queue_action(queue.name, action), given, error)


def ask(request: Request, question: Question, action: str, given: Fields, error: str = "") -> Response:
    """The page that asks. action: where its form is sent."""
    back = given.get("back", "")
    return render(
        request,
        "ask.html",
        status=400 if error else 200,
        question=question,
        action=action,
        back=back if links.is_own(back) else question.back or links.overview(),
        error=error,
        fields=[field._replace(value=given.get(field.name, "")) if error else field for field in question.fields],
    )


def chosen(action: str, actions: Mapping[str, T]) -> T:
    """What a table has for an action. Raises Problem 404 for an unknown one."""
    if action not in actions:
        raise Problem(404, f"expected one of the actions {', '.join(actions)}, got: {action[:200]}")
    return actions[action]


def _remove(queue: BullQueue, job_id: str) -> Question:
    text = f"Its data, result and log are deleted from {queue.name}, and its children."
    return Question(f"Remove job {job_id}?", text, "Remove", is_dangerous=True, back=links.queue(queue.name))


def _change(queue: BullQueue, job_id: str) -> Question:
    job = existing_job(queue, job_id)
    fields = [Field("data", "Data, JSON", laid_out(job.data_text), "long")] if len(job.data_text) < _MOST_DATA else []
    if job.state in _MOVABLE:
        if queue.handle.dialect.has("priorities"):
            fields.append(Field("priority", "Priority; 1 is the highest, 0 none", str(job.priority or 0)))
        fields.append(Field("delay", "Delay from now, ms; empty: unchanged", kind="number"))
    text = "A job that has started has read its data already." if job.state == "active" else ""
    hidden = {"etag": etag_of(job)}
    return Question(f"Change job {job_id}", text, "Change", tuple(fields), hidden, back=links.job(queue.name, job_id))


def _add(queue: BullQueue, given: Fields) -> Question:
    """given: `like`, the id of a job that the new one resembles."""
    like = queue.job(given["like"]) if given.get("like") else None
    fields = [
        Field("data", "Data, JSON", laid_out(like.data_text) if like else "{}", "long"),
        Field("name", "Name", (like and like.name) or ""),
        Field("job_id", "Id; empty: the next number"),
        Field("delay", "Delay, ms", kind="number"),
        Field("attempts", "Attempts", _attempts(like), "number"),
    ]
    if queue.handle.dialect.has("priorities"):
        fields.append(Field("priority", "Priority; 1 is the highest", str((like and like.priority) or "")))
    return Question(f"Add a job to {queue.name}", "", "Add", tuple(fields), back=links.queue(queue.name))


def _attempts(job: Job | None) -> str:
    given = (parsed_opts(job.opts_text) or {}).get("attempts") if job else None
    return str(given) if isinstance(given, int) else ""


def _limits(queue: BullQueue, given: Fields) -> Question:
    limits = queue.limits()
    return Question(
        f"Limits of {queue.name}",
        "They are for all workers of the queue together. An empty field is no limit.",
        "Set",
        (
            Field("concurrency", "Active jobs at once", str(limits.concurrency or ""), "number"),
            Field("max", "Jobs that start per period", str(limits.max or ""), "number"),
            Field("duration_ms", "Period, ms", str(limits.duration_ms or ""), "number"),
        ),
        back=links.queue(queue.name),
    )


def _change_all(action: str, queue: BullQueue, given: Fields) -> Question:
    """given: the conditions, by the names of the search."""
    state, verb = given.get("state", "failed"), action.capitalize()
    which = filter_of(given)
    consequence = {
        "remove": "Their data, results and logs are deleted, and their children. This can't be undone.",
        "promote": "They wait for a worker at once.",
    }.get(action, "They wait for a worker again.")
    conditions = [f"{label} {given[name]}" for name, label in _CONDITIONS.items() if given.get(name)]
    return Question(
        f"{verb} {_number(queue, state, which)} {state} jobs?",
        f"Only jobs with {', '.join(conditions)}. {consequence}" if conditions else consequence,
        verb,
        hidden={name: value for name, value in given.items() if name in ("state", *_CONDITIONS)},
        is_dangerous=action == "remove",
        back=_list(queue, state),
    )


def filter_of(given: Fields) -> JobFilter:
    """The conditions of a search. Raises Problem 400."""
    since, until = (time_of_input(name, given.get(name, "")) for name in ("from", "to"))
    name, text, reason = (given.get(name) or None for name in ("name", "text", "reason"))
    return JobFilter(name, text, since, until, reason)


def _number(queue: BullQueue, state: str, which: JobFilter) -> str:
    """How many jobs a change is about, as far as they can be counted in time."""
    if which.is_empty:
        return f"{queue.counts().get(state, 0):,}"
    until_s, number = monotonic_s() + READING_S, 0
    for ids in matching_ids(queue.handle, state, which):
        number += len(ids)
        if monotonic_s() > until_s:
            return f"at least {number:,}"
    return f"{number:,}"


def _clean(queue: BullQueue, given: Fields) -> Question:
    state = given.get("state", "completed")
    return Question(
        f"Remove {state} jobs?",
        "Age counts from when a job ended, else started, else was added. This can't be undone.",
        "Remove",
        (Field("grace", "Jobs", choices=_AGES),),
        {"state": state},
        True,
        _list(queue, state),
    )


def _drain(queue: BullQueue, given: Fields) -> Question:
    return Question(
        f"Drain {queue.name}?",
        "All jobs that wait for a worker are removed. Active and ended jobs stay. This can't be undone.",
        "Drain",
        (Field("delayed", "Remove delayed jobs, too", kind="check"),),
        is_dangerous=True,
        back=links.queue(queue.name),
    )


def _obliterate(queue: BullQueue, given: Fields) -> Question:
    return Question(
        f"Delete queue {queue.name}?",
        "The queue is deleted with all its jobs. This can't be undone.",
        "Delete",
        (
            Field("confirm", f"Type {queue.name} to continue"),
            Field("force", "Delete active jobs, too", kind="check"),
        ),
        is_dangerous=True,
    )


def _remove_scheduler(queue: BullQueue, given: Fields) -> Question:
    scheduler = given.get("scheduler", "")
    return Question(
        f"Remove job scheduler {scheduler}?",
        "Its next job is removed, too; a job that waits for a worker stays.",
        "Remove",
        hidden={"scheduler": scheduler},
        is_dangerous=True,
        back=links.tab(queue.name, "schedulers"),
    )


def _list(queue: BullQueue, state: str) -> str:
    return links.queue(queue.name, state=state)


JOB_QUESTIONS: Final[Mapping[str, Callable[[BullQueue, str], Question]]] = {"remove": _remove, "change": _change}
QUEUE_QUESTIONS: Final[Mapping[str, Callable[[BullQueue, Fields], Question]]] = {
    "add": _add,
    "limits": _limits,
    **{name: partial(_change_all, action) for name, action in CHANGES_OF_ALL.items()},
    "clean": _clean,
    "drain": _drain,
    "obliterate": _obliterate,
    "remove-scheduler": _remove_scheduler,
}
