"""Sessions of the page: a token is exchanged for a cookie."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import parse_qs

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import RedirectResponse
from fastapi.security import HTTPAuthorizationCredentials
from pydantic import BaseModel, Field

from spark_bull.web.access import (
    Caller,
    Role,
    access_of,
    bearer,
    check_origin,
    delete_cookie,
    set_cookie,
)
from spark_bull.web.problems import Problem, documented

sessions = APIRouter(prefix="/api/session", tags=["session"])
form = APIRouter(include_in_schema=False)


class NewSession(BaseModel):
    """A token, for a session with its role."""

    token: str = Field(min_length=1, max_length=1_000, examples=["the write token"])


class SessionDocument(BaseModel):
    """What the caller may do. `csrfToken`: for the header X-CSRF-Token of unsafe requests; only of a session."""

    role: str = Field(description="none, read or write", examples=["write"])
    csrfToken: str | None = Field(default=None, description="value of X-CSRF-Token for unsafe requests of this session")
    readOnly: bool = Field(description="whether the server lets nobody write")
    tokenRequired: bool = Field(description="whether reading needs a token")


@sessions.get("", responses=documented(401, 421))
def read_session(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]
) -> SessionDocument:
    """Says what the caller may do, also without a token."""
    caller = access_of(request).caller(request, credentials.credentials if credentials else None)
    return _document(request, caller)


@sessions.post("", responses=documented(400, 401, 403, 413, 421))
def open_session(request: Request, response: Response, new: NewSession) -> SessionDocument:
    """Sets the cookie of a session with the role of a token."""
    check_origin(request)
    access = access_of(request)
    role = access.role_of(new.token)
    if role is Role.NONE:
        raise Problem(401, "expected a token of this server, got another one", field="token")
    session, cookie = access.open_session(role)
    set_cookie(request, response, cookie)
    return _document(request, Caller(role, session))


@sessions.delete("", status_code=204, responses=documented(403, 421))
def close_session(request: Request, response: Response) -> None:
    """Deletes the cookie of the session."""
    check_origin(request)
    delete_cookie(response)


@form.post("/login")
async def log_in(request: Request) -> Response:
    """The form of the login page, with the field `token`: leads to the page, or back to the form."""
    check_origin(request)
    fields = parse_qs((await request.body()).decode("utf-8", "replace"))
    access = access_of(request)
    role = access.role_of(fields.get("token", [""])[0])
    if role is Role.NONE:
        return RedirectResponse("/login?wrong=1", 303)
    response = RedirectResponse("/", 303)
    set_cookie(request, response, access.open_session(role)[1])
    return response


@form.post("/logout")
def log_out(request: Request) -> Response:
    """The form that ends a session."""
    check_origin(request)
    response = RedirectResponse("/login", 303)
    delete_cookie(response)
    return response


def _document(request: Request, caller: Caller) -> SessionDocument:
    access = access_of(request)
    return SessionDocument(
        role=caller.role.name.lower(),
        csrfToken=access.csrf_token(caller.session) if caller.session else None,
        readOnly=access.read_only,
        tokenRequired=access.demands_token,
    )
