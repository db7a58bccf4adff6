"""Pages that ask before jobs are removed, or many are changed. Scripts show them as dialogs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, NamedTuple

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from spark_bull.web.access import Authorized
from spark_bull.web.guard import unescaped
from spark_bull.web.page import links
from spark_bull.web.page.actions import MOST_JOBS
from spark_bull.web.page.rendering import render
from spark_bull.web.problems import Problem
from spark_bull.web.queue_access import ExistingQueue

_AGES: Final = (
    (0, "of any age"),
    (3_600_000, "older than 1 hour"),
    (86_400_000, "older than 1 day"),
    (7 * 86_400_000, "older than 7 days"),
    (30 * 86_400_000, "older than 30 days"),
)

router: Final = APIRouter(include_in_schema=False)


class _Question(NamedTuple):
    """What is asked. `hidden`: further fields of the form; `ages`: the choices of a field `grace`."""

    title: str
    text: str
    verb: str
    hidden: Mapping[str, str] = {}
    is_dangerous: bool = True
    ages: tuple[tuple[int, str], ...] = ()


@router.get("/queues/{queue}/jobs/{job_id}/actions/remove")
def ask_to_remove(
    request: Request, caller: Authorized, queue: ExistingQueue, job_id: str, back: Annotated[str, Query()] = ""
) -> Response:
    """Asks whether to remove a job."""
    named = unescaped(job_id)
    question = _Question(
        f"Remove job {named}?", f"Its data, result and log are deleted from {queue.name}, and its children.", "Remove"
    )
    to = back if links.is_own(back) else links.queue(queue.name)
    return _ask(request, question, links.job_action(queue.name, named, "remove"), to)


@router.get("/queues/{queue}/actions/{action}")
def ask_to_change(
    request: Request,
    caller: Authorized,
    queue: ExistingQueue,
    action: str,
    state: Annotated[str, Query()] = "",
    scheduler: Annotated[str, Query()] = "",
) -> Response:
    """Asks whether to change many jobs, or to remove a job scheduler."""
    counts = queue.counts()
    shown = f"{min(counts.get(state, 0), MOST_JOBS):,}"
    questions = {
        "retry-all": _Question(
            f"Retry {shown} {state} jobs?", "They wait for a worker again.", "Retry", {"state": state}, False
        ),
        "promote-all": _Question(
            f"Promote {counts.get('delayed', 0):,} delayed jobs?",
            "They wait for a worker at once.",
            "Promote",
            is_dangerous=False,
        ),
        "clean": _Question(
            f"Remove {state} jobs?",
            "Age counts from when a job ended, else started, else was added. This can't be undone.",
            "Remove",
            {"state": state},
            ages=_AGES,
        ),
        "remove-scheduler": _Question(
            f"Remove job scheduler {scheduler}?",
            "Its next job is removed, too; a job that waits for a worker stays.",
            "Remove",
            {"scheduler": scheduler},
        ),
    }
    if action not in questions:
        raise Problem(404, f"expected one of the actions {', '.join(questions)}, got: {action[:200]}")
    back = links.tab(queue.name, "schedulers") if scheduler else links.queue(queue.name, state=state)
    return _ask(request, questions[action], links.queue_action(queue.name, action), back)


def _ask(request: Request, question: _Question, action: str, back: str) -> Response:
    return render(request, "ask.html", question=question, action=action, back=back)
