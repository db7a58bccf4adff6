"""The URLs of the page. Names of queues and ids of jobs can have any characters."""

from __future__ import annotations

from urllib.parse import quote, urlencode


def segment(text: str) -> str:
    """A text as one segment of a path, also one with slashes."""
    return quote(text, safe=":@")


def is_own(url: str) -> bool:
    """Whether a URL leads to this server: a path, and not `//host`."""
    return url.startswith("/") and not url.startswith(("//", "/\\")) and url.isprintable()


def overview(**query: object) -> str:
    return _with_query("/", query)


def jobs(**query: object) -> str:
    """The jobs of a state in all queues."""
    return _with_query("/jobs", query)


def queue(name: str, /, **query: object) -> str:
    return _with_query(f"/queues/{segment(name)}", query)


def tab(name: str, tab: str) -> str:
    """One of the parts of a queue: jobs, statistics, job schedulers, workers or writes."""
    return queue(name) if tab == "jobs" else f"{queue(name)}/{tab}"


def queue_action(name: str, action: str) -> str:
    """Where a form changes a queue."""
    return f"{queue(name)}/actions/{action}"


def ask(name: str, action: str, /, **query: object) -> str:
    """The page that asks whether to change a queue."""
    return _with_query(queue_action(name, action), query)


def job(name: str, job_id: str) -> str:
    return f"{queue(name)}/jobs/{segment(job_id)}"


def job_action(name: str, job_id: str, action: str) -> str:
    """Where a form changes a job."""
    return f"{job(name, job_id)}/actions/{action}"


def ask_job(name: str, job_id: str, action: str, /, **query: object) -> str:
    """The page that asks whether to change a job."""
    return _with_query(job_action(name, job_id, action), query)


def selection(action: str) -> str:
    """Where a form changes the selected jobs."""
    return f"/jobs/actions/{action}"


def raw(name: str, job_id: str, field: str) -> str:
    """A field of a job, whole, as text."""
    return f"{job(name, job_id)}/raw/{field}"


def static(file: str) -> str:
    return f"/static/{file}"


def events(name: str = "") -> str:
    """Where the browser learns that queues have changed; without a name, any queue."""
    return f"/api{queue(name)}/events" if name else "/api/events"


def api() -> str:
    """The page of the REST API."""
    return "/api"


def sign_in() -> str:
    return "/login"


def sign_out() -> str:
    return "/logout"


def _with_query(path: str, query: dict[str, object]) -> str:
    given = {name: str(value) for name, value in query.items() if value not in (None, "", False)}
    return f"{path}?{urlencode(given)}" if given else path
