"""What holds for every request and response: HEAD, the accepted hosts, the size of bodies, the security headers."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import unquote

from anyio import CancelScope
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from spark_bull.ops.web import links
from spark_bull.ops.web.problems import PROBES, Problem, response_of
from spark_bull.ops.web.settings import WebSettings

#: Maximum size of a body, bytes.
MAX_BODY: Final = 8 << 20
#: Only files of this server, no inline scripts or styles, in no frame of another page.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
    "manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # With no-referrer, browsers send forms with `Origin: null`, by which no form of this site could be recognized.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # FastAPI lets streams of events be stored.
    "Cache-Control": "no-store",
}
#: Stands for %2F in paths; no text can contain this code point.
_SLASH: Final = "\ufdd0"


class RequestRules:
    """ASGI middleware around the application."""

    def __init__(self, app: ASGIApp, settings: WebSettings) -> None:
        self._app = app
        self._hosts = settings.accepted_hosts
        self._root = settings.root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        links.ROOT.set(self._root)
        scope = _below(self._root, scope)

        async def send_protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
            await send(message)

        problem = self._refusal(scope)
        if problem is not None:
            await response_of(problem)(scope, receive, send_protected)
            return
        app = _as_get(self._app) if scope["method"] == "HEAD" else self._app
        await app(_with_escaped_slashes(scope), _bounded(receive), send_protected)

    def _refusal(self, scope: Scope) -> Problem | None:
        headers = Headers(scope=scope)
        host = host_name(headers.get("host", ""))
        if self._hosts and host not in self._hosts and scope["path"] not in PROBES:
            return Problem(
                421,
                f"expected the header Host to be one of {', '.join(sorted(self._hosts))}, got: {host[:200]!r}: start "
                "the server with --host-name to add a name",
            )
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > MAX_BODY:
            return _too_large()
        return None


def _below(root: str, scope: Scope) -> Scope:
    """The path without the root, which some reverse proxies pass on and others remove."""
    path, raw = scope["path"], scope.get("raw_path") or b""
    if not root or not f"{path}/".startswith(f"{root}/"):
        return scope
    return {**scope, "path": path[len(root) :] or "/", "raw_path": raw[len(root) :] or b"/"}


def _as_get(app: ASGIApp) -> ASGIApp:
    """Answers HEAD with the status and headers of GET. Streams of events, too, which would not end, end there."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        with CancelScope() as answered:

            async def send_start(message: Message) -> None:
                if message["type"] == "http.response.start":
                    await send(message)
                    await send({"type": "http.response.body"})
                    answered.cancel()

            await app({**scope, "method": "GET"}, receive, send_start)

    return answer


def _with_escaped_slashes(scope: Scope) -> Scope:
    """Keeps %2F in a part of a path, such as the id of a job, from being taken for the end of the part."""
    raw = scope.get("raw_path") or b""
    if b"%2f" not in raw.lower():
        return scope
    path = re.sub("%2f", _SLASH, raw.decode("latin-1"), flags=re.IGNORECASE)
    return {**scope, "path": unquote(path)}


def unescaped(part: str) -> str:
    """A part of a path as it was meant."""
    return part.replace(_SLASH, "/")


def host_name(header: str) -> str:
    """The name in a header Host, without the port, in lower case."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower()


def _bounded(receive: Receive) -> Receive:
    """Counts the bytes of a body, whose length the headers may not give."""
    received = 0

    async def count() -> Any:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > MAX_BODY:
            # FastAPI answers other errors that are raised here with 400.
            problem = _too_large()
            raise HTTPException(problem.status, problem.detail)
        return message

    return count


def _too_large() -> Problem:
    return Problem(413, f"expected a body of at most {MAX_BODY:,} bytes, got a larger one: send several requests")
