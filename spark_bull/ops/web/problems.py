"""Errors as JSON documents (RFC 9457), with the field that is wrong."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.routing import Match

from spark_bull.core import errors

log = logging.getLogger("spark_bull")

MEDIA_TYPE: Final = "application/problem+json"
#: Paths of probes, which orchestrators send to addresses, not to names.
ALIVE, READY = "/healthz", "/readyz"
PROBES: Final = (ALIVE, READY)
#: Tags of bodies with one job, and with several: no parts of the field in an error.
ONE: Final = "(one)"
MANY: Final = "(many)"
#: Seconds after which a client may repeat a request that Redis did not answer.
RETRY_AFTER_S: Final = 5
TITLES: Final[Mapping[int, str]] = {
    400: "Bad request",
    401: "Token required",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    412: "Changed meanwhile",
    413: "Body too large",
    415: "Unsupported media type",
    421: "Unknown host",
    429: "Too many at once",
    500: "Internal error",
    503: "Redis unavailable",
}
#: Errors of this package and their status, the first that matches.
_STATUS: Final[tuple[tuple[tuple[type[errors.SparkBullError], ...], int], ...]] = (
    ((errors.JobMissing,), 404),
    ((errors.JobError, errors.DialectError, errors.QueueFull), 409),
    ((errors.QueueBusy, errors.IntakeClosed, errors.ParentError), 409),
    ((errors.OptionError, errors.PatternError), 400),
    ((errors.ConnectionLost, errors.NotReplicated), 503),
)
_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
_NAMED: Final = re.compile("`([A-Za-z_-]+)`")


class ProblemDocument(BaseModel):
    """An error. `field`: the parameter or property that is wrong, if there is one."""

    title: str = Field(examples=["Not found"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["expected a job 7 in queue mail, found none"])
    field: str | None = Field(default=None, examples=[None])


class Problem(Exception):
    """Ends a request with a status and a text that says what was expected, what came and what to do."""

    def __init__(
        self, status: int, detail: str, *, field: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.field = field
        self.headers = dict(headers or {})


def response_of(problem: Problem) -> Response:
    document = ProblemDocument(
        title=TITLES.get(problem.status, "Error"), status=problem.status, detail=problem.detail, field=problem.field
    )
    return JSONResponse(document.model_dump(), problem.status, problem.headers, MEDIA_TYPE)


def problem_of(error: errors.SparkBullError) -> Problem:
    """The status and text of an error of this package, whose messages contain no secrets."""
    status = next((status for kinds, status in _STATUS if isinstance(error, kinds)), 500)
    named = _NAMED.search(str(error)) if status == 400 else None
    headers = {"Retry-After": str(RETRY_AFTER_S)} if status == 503 else {}
    return Problem(status, str(error), field=named[1] if named else None, headers=headers)


def handle_errors(app: FastAPI, error_page: Callable[[Request, Problem], Response]) -> None:
    """Answers all errors of an application: in the API with problem documents, on the page with a page."""

    def answer(request: Request, problem: Problem) -> Response:
        path = request.url.path
        return response_of(problem) if path.startswith("/api/") or path in PROBES else error_page(request, problem)

    @app.exception_handler(Problem)
    def _problem(request: Request, error: Problem) -> Response:
        return answer(request, error)

    @app.exception_handler(errors.SparkBullError)
    def _ours(request: Request, error: errors.SparkBullError) -> Response:
        problem = problem_of(error)
        if problem.status == 500:
            log.error("%s %s failed: %s", request.method, request.url.path, error)
        return answer(request, problem)

    @app.exception_handler(RequestValidationError)
    def _invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"][1:] if part not in (ONE, MANY))
        if first["type"] == "json_invalid":
            detail = f"expected the body to be JSON: {first['ctx']['error']} at character {first['loc'][-1]}"
            return answer(request, Problem(400, detail, field="body"))
        if not place:
            detail = f"expected a body in JSON, with Content-Type: application/json: {first['msg']}"
            return answer(request, Problem(400, detail, field="body"))
        return answer(request, Problem(400, f"expected `{place}` to be valid: {first['msg']}", field=place))

    @app.exception_handler(HTTPException)
    def _http(request: Request, error: HTTPException) -> Response:
        headers = dict(error.headers or {})
        detail = str(error.detail)
        if error.status_code == 405:
            headers["Allow"] = ", ".join(_methods_of(app, request))
            detail = f"expected one of the methods {headers['Allow']}, got: {request.method}"
        elif error.status_code == 404:
            detail = f"expected a path of the API, such as /api/queues, got: {request.url.path}"
        return response_of(Problem(error.status_code, detail, headers=headers))

    @app.exception_handler(Exception)
    def _unexpected(request: Request, error: Exception) -> Response:
        return response_of(Problem(500, "the server failed unexpectedly: its log has the error"))


def _methods_of(app: FastAPI, request: Request) -> list[str]:
    """The methods that any route with the path of a request has; the one that refused it knows only its own."""
    found = [
        method
        for method in _METHODS
        if any(route.matches({**request.scope, "method": method})[0] is Match.FULL for route in app.routes)
    ]
    # HEAD is answered as GET.
    return [*found, "HEAD"] if "GET" in found else found
