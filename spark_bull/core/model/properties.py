"""Dataclasses as mappings, by the names that other programs see."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from spark_bull.core.model.job_json import json_or_text


def camel_case(name: str) -> str:
    """The name of a field in Node; fields `…_text`, which hold JSON, have the name of what it stands for."""
    first, *others = name.removesuffix("_text").split("_")
    return first + "".join(map(str.capitalize, others))


def in_camel_case(found: Any) -> dict[str, Any]:
    """The fields of a dataclass."""
    return {camel_case(field.name): getattr(found, field.name) for field in fields(found)}


def parsed(found: Any) -> dict[str, Any]:
    """The fields of a dataclass by its own names; those that hold JSON are parsed, and without `_text`."""
    given = {field.name: getattr(found, field.name) for field in fields(found)}
    texts = {name: given.pop(name) for name in list(given) if name.endswith("_text")}
    return given | {name.removesuffix("_text"): json_or_text(text) for name, text in texts.items()}
