"""Signing in and out: a token is exchanged for the cookie of a session."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from spark_bull.ops.web.access import Role, access_of, check_origin, delete_cookie, set_cookie
from spark_bull.ops.web.page import links
from spark_bull.ops.web.page.rendering import render

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
    role = access.role_of(fields.get("token", [""])[0])
    if role is Role.NONE:
        return RedirectResponse(f"{links.sign_in()}?wrong=1", 303)
    response = RedirectResponse(links.overview(), 303)
    set_cookie(request, response, access.open_session(role))
    return response


@router.post("/logout")
def log_out(request: Request) -> Response:
    """The form that ends a session."""
    check_origin(request)
    response = RedirectResponse(links.sign_in(), 303)
    delete_cookie(response)
    return response
