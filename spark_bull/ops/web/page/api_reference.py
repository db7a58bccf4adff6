"""The page of the REST API: its operations and documents, from the OpenAPI description."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from fastapi import APIRouter, Request
from fastapi.responses import Response

from spark_bull.ops.web.access import Authorized
from spark_bull.ops.web.api.description import described
from spark_bull.ops.web.page.rendering import render

router: Final = APIRouter(include_in_schema=False)


class Kind(NamedTuple):
    """A type of a value: a text, and the name of a document at its end, or ""."""

    text: str
    document: str = ""


@router.get("/api")
def show_api(request: Request, caller: Authorized) -> Response:
    """The operations of the API by their tags, and the documents that they take and return."""
    found = described(request.app)
    groups: dict[str, list[tuple[str, str, Any]]] = {}
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            groups.setdefault(operation["tags"][0], []).append((method.upper(), path, operation))
    return render(
        request,
        "api.html",
        introduction=found["info"]["description"],
        groups=groups,
        documents=sorted(found["components"]["schemas"].items()),
        kinds_of=kinds_of,
    )


def kinds_of(schema: Mapping[str, Any]) -> list[Kind]:
    """The types that a JSON schema allows."""
    return list(_kinds_of(schema))


def _kinds_of(schema: Mapping[str, Any]) -> Iterator[Kind]:
    alternatives = next((schema[name] for name in ("anyOf", "oneOf", "allOf") if name in schema), None)
    if alternatives is not None:
        for alternative in alternatives:
            yield from _kinds_of(alternative)
    elif "$ref" in schema:
        yield Kind("", schema["$ref"].rpartition("/")[2])
    elif "enum" in schema or "const" in schema:
        yield Kind(" | ".join(map(str, schema.get("enum") or [schema["const"]])))
    elif schema.get("type") == "array":
        yield from (Kind(f"list of {kind.text}".strip(), kind.document) for kind in _kinds_of(schema["items"]))
    else:
        yield Kind(schema.get("type", "any JSON") + _range(schema))


def _range(schema: Mapping[str, Any]) -> str:
    """The limits of a number, without an upper limit that all numbers of its type have."""
    least, most = schema.get("minimum"), schema.get("maximum")
    if most is not None and most < 2**31 - 1:
        return f", {least:,.0f} to {most:,.0f}" if least is not None else f", at most {most:,.0f}"
    return f", {least:,.0f} or more" if least is not None else ""
