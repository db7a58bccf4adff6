"""Errors as a page; requests without a session go to the login."""

from __future__ import annotations

from typing import Final

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from spark_bull.ops.web.page import links
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
