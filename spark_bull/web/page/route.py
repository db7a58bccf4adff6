"""Routes that answer errors with a page."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse, Response
from fastapi.routing import APIRoute

from spark_bull.errors import SparkBullError
from spark_bull.web.page import links
from spark_bull.web.page.rendering import render
from spark_bull.web.problems import Problem, problem_of

_UNAUTHENTICATED: Final = 401
_UNAVAILABLE: Final = 503
_TITLES: Final = {
    400: "This address is not right",
    403: "This is not allowed",
    404: "Not found",
    409: "This changed meanwhile",
    503: "Redis does not answer",
}


class PageRoute(APIRoute):
    """A route whose errors are pages; requests without a session go to the login."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_errors(request: Request) -> Response:
            try:
                return await handle(request)
            except RequestValidationError as error:
                first = error.errors()[0]
                problem = Problem(400, f"expected `{first['loc'][-1]}` to be valid: {first['msg']}")
            except Problem as error:
                if error.status == _UNAUTHENTICATED:
                    return RedirectResponse(links.sign_in(), 303)
                problem = error
            except SparkBullError as error:
                problem = problem_of(error)
            return render(
                request,
                "error.html",
                status=problem.status,
                title=_TITLES.get(problem.status, "Something failed"),
                detail=problem.detail,
                may_try_again=problem.status == _UNAVAILABLE,
            )

        return handle_errors
