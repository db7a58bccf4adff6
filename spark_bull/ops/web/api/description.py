"""The OpenAPI description of the API, and the check that a request has only parameters of its operation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.dependencies.models import Dependant
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

from spark_bull.core.errors import did_you_mean
from spark_bull.ops.web import links
from spark_bull.ops.web.access import authorize
from spark_bull.ops.web.problems import MEDIA_TYPE, TITLES, Problem, ProblemDocument

router = APIRouter(include_in_schema=False)


@router.get("/api/openapi.json", dependencies=[Depends(authorize)])
def openapi(request: Request) -> JSONResponse:
    """The description."""
    return JSONResponse(described(request.app))


def described(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI description of the API, with the errors that all operations can have in place of FastAPI's."""
    description = app.openapi()
    if root := links.ROOT.get():
        description["servers"] = [{"url": root}]
    schemas = description["components"]["schemas"]
    schemas["ProblemDocument"] = ProblemDocument.model_json_schema()
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            # Wrong parameters are answered with 400.
            operation["responses"].pop("422", None)
            operation["responses"] |= {str(status): _problem(status) for status in _errors(method, path)}
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    return description


def _errors(method: str, path: str) -> list[int]:
    """The errors that an operation can have."""
    of_writing = (403, 413) if method != "get" else ()
    of_streams = (429,) if path.endswith("/events") else ()
    return sorted([400, 401, 404, 409, 421, 503, *of_writing, *of_streams])


def _problem(status: int) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/ProblemDocument"}
    return {"description": TITLES[status], "content": {MEDIA_TYPE: {"schema": schema}}}


def known_parameters(request: Request) -> None:
    """Dependency: raises Problem 400 for a query parameter that the operation of a request does not have."""
    route = request.scope.get("route")
    if not isinstance(route, APIRoute):
        return
    known = list(_names(route.dependant))
    for name in request.query_params:
        if name not in known:
            takes = f"one of {', '.join(known)}" if known else "no parameters"
            raise Problem(400, f"expected {takes}, got `{name[:100]}`{did_you_mean(name, known)}", field=name[:100])


def _names(dependant: Dependant) -> Iterator[str]:
    yield from (field.alias for field in dependant.query_params)
    for further in dependant.dependencies:
        yield from _names(further)
