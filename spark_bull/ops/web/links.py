"""The URLs of the page. Names of queues and ids of jobs can have any characters."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final
from urllib.parse import quote, urlencode

#: The path under which a reverse proxy has the server of this request, such as `/bull`.
ROOT: Final[ContextVar[str]] = ContextVar("root", default="")


def segment(text: str) -> str:
    """A text as one segment of a path, also one with slashes."""
    return quote(text, safe=":@")


def is_own(url: str) -> bool:
    """Whether a URL leads to this server: a path, and not `//host`."""
    return url.startswith("/") and not url.startswith(("//", "/\\")) and url.isprintable()


def overview(**query: object) -> str:
    return _with_query(f"{ROOT.get()}/", query)


def jobs(**query: object) -> str:
    """The jobs of a state in all queues."""
    return _with_query(f"{ROOT.get()}/jobs", query)


def schedulers(**query: object) -> str:
    """The job schedulers of all queues."""
    return _with_query(f"{ROOT.get()}/schedulers", query)


def queue(name: str, /, **query: object) -> str:
    return _with_query(f"{ROOT.get()}{_queue(name)}", query)


def _queue(name: str) -> str:
    return f"/queues/{segment(name)}"


def tab(name: str, tab: str) -> str:
    """One of the parts of a queue: jobs, statistics, job schedulers, workers or writes."""
    return queue(name) if tab == "jobs" else f"{queue(name)}/{tab}"


def write(name: str, write_id: str) -> str:
    """One of the writes to a queue, and how far it is."""
    return f"{queue(name)}/writes/{segment(write_id)}"


def queue_action(name: str, action: str) -> str:
    """Where a form changes a queue."""
    return f"{queue(name)}/actions/{action}"


def ask(name: str, action: str, /, **query: object) -> str:
    """The page that asks whether to change a queue."""
    return _with_query(queue_action(name, action), query)


def job(name: str, job_id: str) -> str:
    return f"{queue(name)}/jobs/{segment(job_id)}"


def selected(name: str, job_id: str) -> str:
    """What a box that selects a job is called in a form."""
    return f"{_queue(name)}/jobs/{segment(job_id)}"


def job_action(name: str, job_id: str, action: str) -> str:
    """Where a form changes a job."""
    return f"{job(name, job_id)}/actions/{action}"


def ask_job(name: str, job_id: str, action: str, /, **query: object) -> str:
    """The page that asks whether to change a job."""
    return _with_query(job_action(name, job_id, action), query)


def selection(action: str) -> str:
    """Where a form changes the selected jobs."""
    return f"{ROOT.get()}/jobs/actions/{action}"


def raw(name: str, job_id: str, field: str) -> str:
    """A field of a job, whole, as text."""
    return f"{job(name, job_id)}/raw/{field}"


def static(file: str) -> str:
    return f"{ROOT.get()}/static/{file}"


def events(name: str = "") -> str:
    """Where the browser learns that queues have changed; without a name, any queue."""
    return f"{api()}{_queue(name) if name else ''}/events"


def api() -> str:
    """The page of the REST API."""
    return f"{ROOT.get()}/api"


def sign_in() -> str:
    return f"{ROOT.get()}/login"


def sign_out() -> str:
    return f"{ROOT.get()}/logout"


def _with_query(path: str, query: dict[str, object]) -> str:
    given = {name: str(value) for name, value in query.items() if value not in (None, "", False)}
    return f"{path}?{urlencode(given)}" if given else path
