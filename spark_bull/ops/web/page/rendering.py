"""Renders templates: what all of them get, and how they show numbers, times, payloads and other texts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape

from spark_bull.core.clock import duration, epoch_ms, relative
from spark_bull.core.model.job_json import json_or_text
from spark_bull.core.queue.jobs.portions import time_of
from spark_bull.core.version import VERSION
from spark_bull.ops.web import links
from spark_bull.ops.web.access import access_of, delete_cookie, set_cookie
from spark_bull.ops.web.settings import Role

#: Maximum characters of a text on the page of a job, and in a list of jobs.
SHOWN: Final = 4_000
PREVIEW: Final = 200
_S: Final = 1_000
#: Longer JSON is not laid out: it would take long.
_LAID_OUT: Final = 1_000_000


class Cut(NamedTuple):
    """The beginning of a text. `total`: length of the whole; `left`: characters that are not shown."""

    shown: str
    total: int
    left: int


def cut(text: str | None, most: int = SHOWN) -> Cut:
    whole = text or ""
    return Cut(whole[:most], len(whole), max(0, len(whole) - most))


def laid_out(text: str | None) -> str:
    """JSON with a line per value; another text as it is. None is ""."""
    if text is None or len(text) > _LAID_OUT:
        return text or ""
    value = json_or_text(text)
    return value if isinstance(value, str) and value == text else json.dumps(value, indent=2, ensure_ascii=False)


def traces(stacktrace: Sequence[str]) -> str:
    """Stack traces, the last one first."""
    return "\n\n".join(reversed(stacktrace))


def preview(text: str) -> str:
    """The beginning of a text, for a list."""
    return text[:PREVIEW] + ("…" if len(text) > PREVIEW else "")


#: Cookie with the result of the last form, shown once by the page that follows.
_NOTICE: Final = "spark_bull_notice"
_NOTICE_S: Final = 30
_MAX_NOTICE: Final = 500
#: Sent by scripts that load parts of a page again, which must not take its notice.
_REFRESH: Final = "x-refresh"


@dataclass(frozen=True)
class PageSession:
    """What the user of the page may do. `csrf`: for the field of that name of every form."""

    signed_in: bool
    may_write: bool
    may_sign_in: bool
    csrf: str


@dataclass(frozen=True)
class Notice:
    """What a form has done, or why it has not."""

    text: str
    is_error: bool = False


def render(request: Request, template: str, status: int = 200, **context: Any) -> Response:
    """Renders a page. Its template gets `context`, and what all have."""
    notice = None if _REFRESH in request.headers else _notice_of(request)
    settings = request.app.state.settings
    common = {
        "now": epoch_ms(),
        "links": links,
        "static": links.static,
        "here": _here(request),
        "where": request.app.state.queues.connection.settings.where,
        "version": VERSION,
        "session": session_of(request),
        "prefix": settings.options.prefix,
        "notice": notice,
        "events_url": None,
    }
    response = HTMLResponse(encoded(_ENVIRONMENT.get_template(template).render(common | context)), status)
    if notice is not None:
        delete_cookie(response, _NOTICE)
    return response


def encoded(text: str) -> bytes:
    """A text in UTF-8. JSON can have unpaired surrogates, which have no form in it: they stay escaped."""
    return text.encode("utf-8", "backslashreplace")


def go_to(request: Request, url: str, notice: Notice) -> Response:
    """Leads to a page of this server, which shows the notice."""
    response = RedirectResponse(url if links.is_own(url) else links.overview(), 303)
    value = f"{int(notice.is_error)}{quote(notice.text[:_MAX_NOTICE], safe='')}"
    set_cookie(request, response, _NOTICE, value, _NOTICE_S)
    return response


def session_of(request: Request) -> PageSession:
    """The rights of the caller, whose cookie may have been checked or not."""
    access = access_of(request)
    caller = access.caller(request, None)
    session = caller.session
    return PageSession(
        signed_in=session is not None,
        may_write=session is not None and caller.role is Role.WRITE and not access.read_only,
        may_sign_in=session is None and not access.read_only,
        csrf=access.csrf_token(session) if session else "",
    )


def _notice_of(request: Request) -> Notice | None:
    value = request.cookies.get(_NOTICE)
    return Notice(unquote(value[1:]), value[0] == "1") if value else None


def _here(request: Request) -> str:
    # Not of `request.url`: some versions of Starlette take a decoded `?` of the path for the start of the query.
    path, query = (request.scope[name].decode("latin-1") for name in ("raw_path", "query_string"))
    here = f"{links.ROOT.get()}{path}"
    return f"{here}?{query}" if query else here


def iso(ms: int | None) -> str:
    """A time as in ISO 8601, to the ms, in UTC; the number if it is out of range."""
    if ms is None:
        return ""
    try:
        time = datetime.fromtimestamp(ms / 1000, timezone.utc)
    except (OverflowError, OSError, ValueError):
        return str(ms)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def local_input(ms: int | None) -> str:
    """A time as the value of an input of the type datetime-local."""
    return iso(ms)[:16]


def grouped(number: int) -> str:
    return f"{number:,}"


def span(ms: float) -> str:
    """A measured duration, such as `250 ms`, `36.8 s` or `2 min 19 s`."""
    if ms < _S:
        return f"{ms:.0f} ms"
    return f"{ms / _S:.1f} s" if ms < 60 * _S else duration(round(ms / _S) * _S)


def coded(text: str) -> Markup:
    """A text whose parts in backticks are code."""
    parts = [escape(part) for part in text.split("`")]
    return Markup().join(Markup("<code>{}</code>").format(part) if n % 2 else part for n, part in enumerate(parts))


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("spark_bull.ops.web.page"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "iso": iso,
        "relative": relative,
        "duration": duration,
        "coded": coded,
        "grouped": grouped,
        "local_input": local_input,
        "preview": preview,
        "span": span,
        "time_of": time_of,
    }
    return environment


_ENVIRONMENT: Final = _environment()
