"""The forms of the page: their fields, and the check that they come from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated
from urllib.parse import parse_qsl

from fastapi import Depends, Request

from spark_bull.web.access import access_of

Fields = Mapping[str, str]


async def _fields(request: Request) -> Fields:
    """The fields of a form of this page. Raises Problem 401 or 403 for a caller who may not write, or another form."""
    body = (await request.body()).decode("utf-8", "replace")
    fields = dict(parse_qsl(body, keep_blank_values=True))
    access = access_of(request)
    access.check(request, access.caller(request, None), csrf=fields.get("csrf", ""))
    return fields


Submitted = Annotated[Fields, Depends(_fields)]
