"""Refuses parameters that an operation does not have: a misspelled condition would hold for all jobs."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from spark_bull.core.errors import did_you_mean
from spark_bull.ops.web.problems import Problem


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
