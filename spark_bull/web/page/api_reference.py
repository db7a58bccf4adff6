"""The page of the REST API: its operations and documents, from the OpenAPI description."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from fastapi import APIRouter, Request
from fastapi.responses import Response

from spark_bull.web.access import Authorized
from spark_bull.web.api.description import described
from spark_bull.web.page.rendering import render
from spark_bull.web.page.route import PageRoute
from spark_bull.web.problems import MEDIA_TYPE

_JSON: Final = ("application/json", MEDIA_TYPE)
#: The first status of an error.
_FIRST_ERROR: Final = 400

router: Final = APIRouter(route_class=PageRoute, include_in_schema=False)


class Kind(NamedTuple):
    """A type of a value: a text, and the name of a document at its end, or ""."""

    text: str
    document: str = ""


@dataclass(frozen=True)
class Value:
    """A parameter, or a property of a document. `place`: path, query or header; of a property: ""."""

    name: str
    kinds: list[Kind]
    is_required: bool
    description: str
    default: str = ""
    place: str = ""


@dataclass(frozen=True)
class Answer:
    """An answer of an operation. `media_type`: "" without a body."""

    status: str
    description: str
    media_type: str
    kinds: list[Kind]


@dataclass(frozen=True)
class Operation:
    """A method of a path. `body`: the alternatives for the body of a request; none: it has no body."""

    method: str
    path: str
    description: str
    parameters: list[Value]
    body: list[Kind]
    answers: list[Answer]
    errors: list[Answer]


@dataclass(frozen=True)
class Document:
    """A JSON object, of a request or of an answer."""

    name: str
    description: str
    properties: list[Value]


@router.get("/api")
def show_api(request: Request, caller: Authorized) -> Response:
    """The operations of the API by their tags, and the documents that they take and return."""
    found = described(request.app)
    groups: dict[str, list[Operation]] = {}
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            groups.setdefault(operation["tags"][0], []).append(_operation(method, path, operation))
    return render(
        request,
        "api.html",
        introduction=found["info"]["description"],
        groups=groups,
        documents=[_document(name, schema) for name, schema in sorted(found["components"]["schemas"].items())],
    )


def _operation(method: str, path: str, found: Mapping[str, Any]) -> Operation:
    content = found.get("requestBody", {}).get("content", {})
    answers = [_answer(status, answer) for status, answer in found["responses"].items()]
    return Operation(
        method.upper(),
        path,
        found.get("description", ""),
        [_parameter(parameter) for parameter in found.get("parameters", ())],
        [kind for body in content.values() for kind in kinds_of(body["schema"]) if kind.text != "null"],
        [answer for answer in answers if int(answer.status) < _FIRST_ERROR],
        [answer for answer in answers if int(answer.status) >= _FIRST_ERROR],
    )


def _answer(status: str, found: Mapping[str, Any]) -> Answer:
    content: Mapping[str, Any] = found.get("content", {})
    kinds = [kind for name, body in content.items() if name in _JSON for kind in kinds_of(body["schema"])]
    return Answer(status, found["description"], next(iter(content), ""), kinds)


def _parameter(found: Mapping[str, Any]) -> Value:
    # A parameter can be left out, but not null.
    kinds = [kind for kind in kinds_of(found["schema"]) if kind.text != "null"]
    description = found.get("description", "")
    return Value(found["name"], kinds, found["required"], description, _default(found["schema"]), found["in"])


def _document(name: str, schema: Mapping[str, Any]) -> Document:
    required = schema.get("required", ())
    properties = [
        Value(key, list(kinds_of(found)), key in required, found.get("description", ""), _default(found))
        for key, found in schema["properties"].items()
    ]
    return Document(name, schema.get("description", ""), properties)


def _default(schema: Mapping[str, Any]) -> str:
    value = schema.get("default")
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def kinds_of(schema: Mapping[str, Any]) -> Iterator[Kind]:
    """The types that a JSON schema allows."""
    for alternatives in ("anyOf", "oneOf", "allOf"):
        for alternative in schema.get(alternatives, ()):
            yield from kinds_of(alternative)
        if alternatives in schema:
            return
    if "$ref" in schema:
        yield Kind("", schema["$ref"].rpartition("/")[2])
    elif "enum" in schema or "const" in schema:
        yield Kind(" | ".join(map(str, schema.get("enum") or [schema["const"]])))
    elif schema.get("type") == "array":
        items = list(kinds_of(schema["items"]))
        yield from (Kind(f"list of {kind.text}".strip(), kind.document) for kind in items)
    else:
        yield Kind(schema.get("type", "any JSON") + _range(schema))


def _range(schema: Mapping[str, Any]) -> str:
    """The limits of a number; those of all numbers of JavaScript say nothing."""
    least, most = schema.get("minimum"), schema.get("maximum")
    if most is not None and most < 2**31 - 1:
        return f", {least:,.0f} to {most:,.0f}" if least is not None else f", at most {most:,.0f}"
    return f", {least:,.0f} or more" if least is not None else ""
