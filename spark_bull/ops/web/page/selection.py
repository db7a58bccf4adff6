"""Changes of the jobs that are selected in a list, in one queue or in several."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Final
from urllib.parse import unquote

from fastapi import APIRouter, Request
from fastapi.responses import Response

from spark_bull.core.model.jobs import Change
from spark_bull.ops.web.page import links
from spark_bull.ops.web.page.forms import Fields, Submitted
from spark_bull.ops.web.page.questions import Question, ask
from spark_bull.ops.web.page.rendering import Notice, go_to
from spark_bull.ops.web.problems import Problem
from spark_bull.ops.web.queue_access import AllQueues

#: The actions, and what they have done.
_ACTIONS: Final = {"retry": "Retried", "promote": "Promoted", "remove": "Removed"}
#: The path of a job: the name of a field, and its parts between slashes.
_PARTS: Final = 5

router: Final = APIRouter(include_in_schema=False)


@router.post("/jobs/actions/{action}")
def change_selected(request: Request, queues: AllQueues, action: str, fields: Submitted) -> Response:
    """Changes the selected jobs; asks first before they are removed."""
    if action not in _ACTIONS:
        raise Problem(404, f"expected one of the actions {', '.join(_ACTIONS)}, got: {action[:200]}")
    selected = _selected(fields)
    number = sum(map(len, selected.values()))
    back = fields.get("back", "")
    if not selected:
        return go_to(request, back, Notice("Nothing was changed: no job is selected.", is_error=True))
    if action == "remove" and "confirmed" not in fields:
        text = "Their data, results and logs are deleted, and their children. This can't be undone."
        title = f"Remove {number:,} selected {'job' if number == 1 else 'jobs'}?"
        hidden = {name: value for name, value in fields.items() if name not in ("csrf", "back")}
        return ask(request, Question(title, text, "Remove", (), hidden, True), links.selection(action), fields)
    state = fields.get("state", "failed")
    outcomes: Counter[str] = Counter()
    for name, ids in selected.items():
        queue = queues.existing(name)
        changes = [Change(job_id, action, state=state if action == "retry" else None) for job_id in ids]
        outcomes.update(changed.outcome for changed in queue.manage(changes))
    skipped = ", ".join(
        f"{count} {outcome.replace('_', ' ')}" for outcome, count in outcomes.items() if outcome != "done"
    )
    text = f"{_ACTIONS[action]} {outcomes['done']:,} of {number:,} jobs{f': {skipped}' if skipped else ''}."
    return go_to(request, back, Notice(text, is_error=not outcomes["done"]))


def _selected(fields: Fields) -> dict[str, list[str]]:
    """The ids of the selected jobs by queue: the names of their fields are the paths of their pages."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in fields:
        parts = name.split("/")
        if len(parts) == _PARTS and (parts[0], parts[1], parts[3]) == ("", "queues", "jobs"):
            found[unquote(parts[2])].append(unquote(parts[4]))
    return found
