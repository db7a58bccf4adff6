"""Dataclasses and values from Redis as JSON documents: how answers write them, and how OpenAPI describes them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final, get_type_hints

from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, GetCoreSchemaHandler, create_model
from pydantic_core import CoreSchema

from spark_bull.core.model.job_json import camel_case, json_or_text

#: A text with more brackets may be nested too deeply to be written again.
_MANY_BRACKETS: Final = 200
#: A parameter in a docstring, and what is said of it.
_PARAMETER: Final = re.compile(r"^ {6}(\w+): (.+(?:\n {8}.+)*)", re.MULTILINE)


def document(found: Any) -> Any:
    """A dataclass or named tuple as an object with names in camel case; fields `…_text` hold JSON."""
    names = [field.name for field in fields(found)] if is_dataclass(found) else getattr(found, "_fields", None)
    if names is not None:
        return {
            camel_case(name): json_value(value) if name.endswith("_text") else document(value)
            for name in names
            for value in [getattr(found, name)]
        }
    if isinstance(found, Mapping):
        return {name: document(value) for name, value in found.items()}
    return [document(value) for value in found] if isinstance(found, (list, tuple)) else found


def json_value(text: str | None) -> Any:
    """Parses JSON from a job; returns the text if it is none or nested too deeply, and None for None."""
    value = json_or_text(text)
    if text is not None and text.count("[") + text.count("{") > _MANY_BRACKETS:
        try:
            json.dumps(value)
        except RecursionError:
            return text
    return value


class Shown:
    """Annotates a dataclass that an answer has as `document` writes it; its docstring describes the properties.

    types: the types of fields whose annotation says too little, and of other properties of the document.
    """

    def __init__(self, **types: Any) -> None:
        self._types = types

    def __get_pydantic_core_schema__(self, kind: type, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler.generate_schema(self._model(kind))

    def _model(self, kind: type) -> type[BaseModel]:
        text = kind.__doc__ or ""
        described = {name: _in_json(found) for name, found in _PARAMETER.findall(text)}
        properties: dict[str, Any] = {
            camel_case(name): (given, Field(description=described.get(name))) for name, given in self._properties(kind)
        }
        return create_model(kind.__name__, __doc__=_in_json(text.partition("\n\n")[0]), **properties)

    def _properties(self, kind: Any) -> Iterator[tuple[str, Any]]:
        hints = get_type_hints(kind)
        for field in fields(kind):
            yield field.name, Any if field.name.endswith("_text") else hints[field.name]
        yield from self._types.items()


def _in_json(text: str) -> str:
    """What a docstring says of a field, for its property: JSON text is parsed there, and None is null."""
    return " ".join(text.split()).partition(", JSON text")[0].replace("None", "null")


class Json(JSONResponse):
    """A response in ASCII: unpaired surrogates, which UTF-8 has no form for, stay escaped."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")
