"""Cursors of pages: opaque texts for places, which are valid for the parameters that they were made with."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import msgpack

from spark_bull.model.jobs import STATES
from spark_bull.queue.jobs.portions import Place
from spark_bull.web.problems import Problem

_LARGEST: Final = 2**53
_MAX_IDS: Final = 2_000
#: A score as Redis writes it.
_SCORE: Final = re.compile(r"-?(inf|[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?)")


@dataclass(frozen=True)
class Position:
    """Where a page begins: a queue, and a place in it; None: its beginning."""

    queue: str
    place: Place | None = None


def cursor_of(position: Position, query: Mapping[str, Any]) -> str:
    """The cursor of a position, for the next request with the same parameters."""
    place = position.place
    packed = msgpack.packb(
        [
            _digest(query),
            position.queue,
            place
            and [
                STATES.index(place.state),
                place.score,
                place.member,
                place.first,
                place.length,
                place.anchors,
                place.cursor,
                place.left_over,
            ],
        ]
    )
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()


def position_of(cursor: str, query: Mapping[str, Any]) -> Position:
    """The position of a cursor. Raises Problem 400 for a text that is no cursor of such a request."""
    try:
        packed = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        digest, queue, place = msgpack.unpackb(packed)
        position = Position(_checked(queue, str), place if place is None else _place(*place))
    except (ValueError, TypeError, IndexError, KeyError, binascii.Error, msgpack.UnpackException) as error:
        raise Problem(400, "expected `cursor` to be the `next` of a page, got another text", field="cursor") from error
    if digest != _digest(query):
        raise Problem(
            400,
            "expected `cursor` with the path and parameters of its page, got others: repeat them, or begin "
            "without a cursor",
            field="cursor",
        )
    return position


def _place(
    state: object,
    score: object,
    member: object,
    first: object,
    length: object,
    anchors: object,
    cursor: object,
    left_over: object,
) -> Place:
    if _checked(score, str) and not _SCORE.fullmatch(str(score)):
        raise ValueError("not a score")
    return Place(
        STATES[_number(state)],
        str(score),
        _checked(member, bytes),
        _number(first),
        _number(length),
        _ids(anchors),
        None if cursor is None else _number(cursor, 2**64),
        _ids(left_over),
    )


def _ids(given: object) -> tuple[bytes, ...]:
    ids = _checked(given, list)
    if len(ids) > _MAX_IDS:
        raise ValueError("too many ids")
    return tuple(_checked(job_id, bytes) for job_id in ids)


def _number(given: object, largest: int = _LARGEST) -> int:
    number: int = _checked(given, int)
    if not 0 <= number <= largest:
        raise ValueError("not a position")
    return number


def _checked(given: object, kind: type) -> Any:
    if type(given) is not kind:
        raise TypeError(f"not a {kind.__name__}")
    return given


def _digest(query: Mapping[str, Any]) -> bytes:
    return blake2b(json.dumps(query, sort_keys=True).encode(), digest_size=6).digest()
