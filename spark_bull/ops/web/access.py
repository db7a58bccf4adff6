"""Who may do what: tokens, sessions of the page, and protection from requests that other sites make.

A request is authenticated by the header `Authorization: Bearer <token>`, or by the cookie of a session, which POST
/login sets. Reading is allowed without both if the server has no read token and listens on a loopback address. Writing
always needs the write token, or a form of the page with a session and its CSRF token.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Depends, Request, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.requests import HTTPConnection

from spark_bull.ops.web import links
from spark_bull.ops.web.problems import Problem
from spark_bull.ops.web.settings import WRITE_TOKEN_VARIABLE, Role, Token, WebSettings

COOKIE: Final = "spark_bull_session"
#: Duration of a session, s.
SESSION_S: Final = 12 * 3600
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True)
class Session:
    """A session of the page. `token`: that opened it; `expires`: s since 1970; `nonce`: makes it unique."""

    token: Token
    expires: int
    nonce: str


@dataclass(frozen=True)
class Caller:
    """Who makes a request. `session`: set if it is authenticated by a cookie; `has_token`: by a header.

    queues: names or globs of the queues that exist for the caller.
    """

    role: Role
    session: Session | None = None
    has_token: bool = False
    queues: tuple[str, ...] = ("*",)


class Access:
    """Checks tokens and sessions. Sessions are signed with a key of this process: they end when the server ends."""

    def __init__(self, settings: WebSettings) -> None:
        self._settings = settings
        self._tokens = settings.all_tokens
        self._key = secrets.token_bytes(32)

    @property
    def read_only(self) -> bool:
        """Whether nobody can write."""
        return not self._settings.allows_writing

    def token_of(self, text: str) -> Token | None:
        """The token of this text; all comparisons take the same time for all tokens of a length."""
        found = [token for token in self._tokens if _is_equal(text, token.text)]
        return found[0] if found else None

    def open_session(self, token: Token) -> str:
        """Creates a session of one of the tokens; returns the value of its cookie."""
        text = f"{self._tokens.index(token)}.{int(time.time()) + SESSION_S}.{secrets.token_urlsafe(16)}"
        return f"{text}.{self._signature('session', text)}"

    def session_of(self, cookie: str) -> Session | None:
        """The session of a cookie; None if it is not one of this process, or has expired."""
        text, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._signature("session", text).encode()):
            return None
        number, expires, nonce = text.split(".")
        session = Session(self._tokens[int(number)], int(expires), nonce)
        return session if session.expires > time.time() else None

    def csrf_token(self, session: Session) -> str:
        """The token that the forms of a session must have."""
        return self._signature("csrf", session.nonce)

    def caller(self, request: HTTPConnection, token: str | None) -> Caller:
        """Who makes a request, with a token in its header or None. Raises Problem 401 for a wrong token."""
        if token is not None:
            found = self.token_of(token)
            if found is None:
                raise _unauthenticated("the token in the header Authorization is not one of this server")
            return Caller(found.role, has_token=True, queues=found.queues)
        session = self.session_of(request.cookies.get(COOKIE, ""))
        if session is not None:
            return Caller(session.token.role, session, queues=session.token.queues)
        return Caller(Role.NONE if self._settings.demands_token else Role.READ)

    def check(self, request: Request, caller: Caller, csrf: str = "") -> None:
        """Raises Problem 401 or 403 unless the caller may make the request. csrf: the token that a form has."""
        if request.method in SAFE_METHODS:
            if caller.role < Role.READ:
                raise _unauthenticated("expected the header `Authorization: Bearer <token>`, or a session, got neither")
            return
        if not caller.has_token:
            check_origin(request)
        if self.read_only:
            raise Problem(
                403,
                "this server only reads: start it without --read-only, and with a write token "
                f"(${WRITE_TOKEN_VARIABLE}, --write-token-file or --tokens-file)",
            )
        if caller.role is Role.NONE or (caller.session is None and not caller.has_token):
            raise _unauthenticated(
                "expected the write token as `Authorization: Bearer <token>`, or a session, got neither"
            )
        if caller.role < Role.WRITE:
            raise Problem(403, "expected the write token, got the one for reading")
        if caller.session is not None and not _is_equal(csrf, self.csrf_token(caller.session)):
            raise Problem(
                403, "expected a form of this page, or the header `Authorization: Bearer <token>`, got another request"
            )

    def _signature(self, purpose: str, text: str) -> str:
        return hmac.new(self._key, f"{purpose}:{text}".encode(), hashlib.sha256).hexdigest()


def check_origin(request: Request) -> None:
    """Raises Problem 403 for a request that a browser makes for another site. Other programs send no such headers."""
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    own = f"{request.url.scheme}://{request.headers.get('host', '')}"
    if site not in (None, "same-origin", "none") or (site is None and origin not in (None, own)):
        raise Problem(403, f"expected a request of this site ({own}), got one of {origin or site}")


def set_cookie(request: Request, response: Response, name: str, value: str, age_s: int) -> None:
    """Sets a cookie, which scripts cannot read and other sites cannot send."""
    response.set_cookie(
        name,
        value,
        max_age=age_s,
        path=links.ROOT.get() or "/",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )


def delete_cookie(response: Response, name: str) -> None:
    response.delete_cookie(name, path=links.ROOT.get() or "/", httponly=True, samesite="strict")


def access_of(request: HTTPConnection) -> Access:
    """The Access of the application that got a request."""
    access: Access = request.app.state.access
    return access


def queues_of_caller(request: Request) -> tuple[str, ...]:
    """Names or globs of the queues that exist for the caller, who may have been checked or not."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return access_of(request).caller(request, token.strip() if scheme.lower() == "bearer" else None).queues


bearer: Final = HTTPBearer(auto_error=False, description="The read token, or the write token.")


def authorize(request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]) -> Caller:
    """Dependency of all routers: the caller, who may read for GET, and may write for other methods."""
    access = access_of(request)
    caller = access.caller(request, credentials.credentials if credentials else None)
    access.check(request, caller)
    return caller


Authorized = Annotated[Caller, Depends(authorize)]


def _unauthenticated(detail: str) -> Problem:
    return Problem(401, detail, headers={"WWW-Authenticate": "Bearer"})


def _is_equal(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())
