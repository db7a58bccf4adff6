"""JSON responses with values from Redis, which need not be valid: any text becomes a valid document."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

from fastapi.responses import JSONResponse

from spark_bull.model.job_json import json_or_text

#: A text with more brackets may be nested too deeply to be written again.
_MANY_BRACKETS: Final = 200


class Json(JSONResponse):
    """A response in ASCII: unpaired surrogates, which UTF-8 has no form for, stay escaped."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def json_value(text: str | None) -> Any:
    """Parses JSON from a job; returns the text if it is none or nested too deeply, and None for None."""
    value = json_or_text(text)
    if text is not None and text.count("[") + text.count("{") > _MANY_BRACKETS:
        try:
            json.dumps(value)
        except RecursionError:
            return text
    return value


def document(found: Any) -> Any:
    """A dataclass as an object with names in camel case; fields `…_text` hold JSON."""
    if is_dataclass(found):
        return {
            _camel(field.name): json_value(value) if field.name.endswith("_text") else document(value)
            for field in fields(found)
            for value in [getattr(found, field.name)]
        }
    if isinstance(found, Mapping):
        return {name: document(value) for name, value in found.items()}
    return [document(value) for value in found] if isinstance(found, (list, tuple)) else found


def _camel(name: str) -> str:
    first, *others = name.removesuffix("_text").split("_")
    return first + "".join(map(str.capitalize, others))
