"""Signing in and out, and errors as a page: requests without a session go to the login."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from spark_bull.ops.web import links
from spark_bull.ops.web.access import COOKIE, SESSION_S, access_of, check_origin, delete_cookie, set_cookie
from spark_bull.ops.web.page.rendering import render
from spark_bull.ops.web.problems import Problem

_UNAUTHENTICATED: Final = 401
_UNAVAILABLE: Final = 503
_TITLES: Final = {
    400: "This address is not right",
    403: "This is not allowed",
    404: "Not found",
    409: "This changed meanwhile",
    503: "Redis does not answer",
}


def error_page(request: Request, problem: Problem) -> Response:
    if problem.status == _UNAUTHENTICATED:
        return RedirectResponse(links.sign_in(), 303)
    return render(
        request,
        "error.html",
        status=problem.status,
        title=_TITLES.get(problem.status, "Something failed"),
        detail=problem.detail,
        may_try_again=problem.status == _UNAVAILABLE,
    )


router: Final = APIRouter(include_in_schema=False)


@router.get("/login")
def ask_for_token(request: Request, wrong: bool = False) -> Response:
    """The form of a session. `wrong`: whether the last token was."""
    return render(request, "login.html", wrong=wrong)


@router.post("/login")
async def log_in(request: Request) -> Response:
    """The form with the field `token`: leads to the page, or back to the form."""
    check_origin(request)
    fields = parse_qs((await request.body()).decode("utf-8", "replace"))
    access = access_of(request)
    token = access.token_of(fields.get("token", [""])[0])
    if token is None:
        return RedirectResponse(f"{links.sign_in()}?wrong=1", 303)
    response = RedirectResponse(links.overview(), 303)
    set_cookie(request, response, COOKIE, access.open_session(token), SESSION_S)
    return response


@router.post("/logout")
def log_out(request: Request) -> Response:
    """The form that ends a session."""
    check_origin(request)
    response = RedirectResponse(links.sign_in(), 303)
    delete_cookie(response, COOKIE)
    return response
