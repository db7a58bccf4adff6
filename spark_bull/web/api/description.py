"""The OpenAPI description of the API."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import JSONResponse

from spark_bull.web.access import authorize
from spark_bull.web.problems import ProblemDocument

router = APIRouter(include_in_schema=False)


@router.get("/api/openapi.json", dependencies=[Depends(authorize)])
def openapi(request: Request) -> JSONResponse:
    """The description."""
    return JSONResponse(described(request.app))


def described(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI description of the API, without the answers of FastAPI that this application does not give."""
    description = app.openapi()
    description["components"]["schemas"]["ProblemDocument"] = ProblemDocument.model_json_schema()
    for operations in description["paths"].values():
        for operation in operations.values():
            # Wrong parameters are answered with 400.
            operation["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        description["components"]["schemas"].pop(name, None)
    return description
