"""Cursors of pages: opaque texts for places, which are valid for the parameters that they were made with."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from hashlib import blake2b
from typing import Annotated, Any, Final, NamedTuple

import msgpack
from pydantic import ConfigDict, Field, TypeAdapter

from spark_bull.core.queue.jobs.portions import Place
from spark_bull.ops.web.documents import Number, State
from spark_bull.ops.web.problems import Problem

_Ids = Annotated[tuple[bytes, ...], Field(max_length=2_000)]


@dataclass(frozen=True)
class Position:
    """Where a page begins: a queue, and a place in it; None: its beginning."""

    queue: str
    place: Place | None = None


class _Place(NamedTuple):
    """The fields of a Place. `score`: as Redis writes it."""

    state: State
    score: Annotated[str, Field(pattern=r"^(-?(inf|[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?))?$")]
    member: bytes
    first: Number
    length: Number
    anchors: _Ids
    cursor: Annotated[int, Field(ge=0, lt=2**64)] | None
    left_over: _Ids


_CONTENT: Final = TypeAdapter(tuple[bytes, str, _Place | None], config=ConfigDict(strict=True))


def cursor_of(position: Position, query: Mapping[str, Any]) -> str:
    """The cursor of a position, for the next request with the same parameters."""
    packed = msgpack.packb([_digest(query), position.queue, position.place and astuple(position.place)])
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()


def position_of(cursor: str, query: Mapping[str, Any]) -> Position:
    """The position of a cursor. Raises Problem 400 for a text that is no cursor of such a request."""
    try:
        packed = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        digest, queue, place = _CONTENT.validate_python(msgpack.unpackb(packed, use_list=False))
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise Problem(400, "expected `cursor` to be the `next` of a page, got another text", field="cursor") from error
    if digest != _digest(query):
        raise Problem(
            400,
            "expected `cursor` with the path and parameters of its page, got others: repeat them, or begin "
            "without a cursor",
            field="cursor",
        )
    return Position(queue, place and Place(*place))


def _digest(query: Mapping[str, Any]) -> bytes:
    return blake2b(json.dumps(query, sort_keys=True).encode(), digest_size=6).digest()
