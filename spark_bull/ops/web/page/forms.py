"""The forms of the page: their fields, and the check that they come from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple, NoReturn
from urllib.parse import parse_qsl

from fastapi import Depends, Request

from spark_bull.ops.web.access import access_of
from spark_bull.ops.web.problems import Problem

#: Numbers with more digits are not exact in Lua.
_MAX_DIGITS: Final = 15

Fields = Mapping[str, str]


class Field(NamedTuple):
    """A field of a form that asks. `long`: a text of several lines; `choices`: values and their labels."""

    name: str
    label: str
    value: str = ""
    kind: Literal["text", "number", "long", "check"] = "text"
    choices: tuple[tuple[object, str], ...] = ()


async def _fields(request: Request) -> Fields:
    """The fields of a form of this page. Raises Problem 401 or 403 for a caller who may not write, or another form."""
    body = (await request.body()).decode("utf-8", "replace")
    fields = dict(parse_qsl(body, keep_blank_values=True))
    access = access_of(request)
    access.check(request, access.caller(request, None), csrf=fields.get("csrf", ""))
    return fields


Submitted = Annotated[Fields, Depends(_fields)]


def text_of(fields: Fields, name: str) -> str:
    """A text with the ends of lines that it had before a browser sent it."""
    return fields.get(name, "").replace("\r\n", "\n")


def integer_of(fields: Fields, name: str) -> int | None:
    """A whole number, or None for an empty field. Raises Problem 400."""
    text = fields.get(name, "").strip()
    if not text:
        return None
    if not text.isdecimal() or len(text) > _MAX_DIGITS:
        raise Problem(
            400,
            f"expected `{name}` to be a whole number of at most {_MAX_DIGITS} digits, got: {text[:200]!r}",
            field=name,
        )
    return int(text)


def json_of(fields: Fields, name: str) -> Any:
    """What a field with JSON holds. Raises Problem 400."""
    try:
        return json.loads(fields.get(name, ""), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise Problem(
            400, f"expected `{name}` to be JSON, such as a text in double quotes: {error}", field=name
        ) from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
