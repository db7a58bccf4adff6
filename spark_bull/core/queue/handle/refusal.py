"""What a queue replies that adds none of some jobs or job schedulers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Refusal(NamedTuple):
    """Nothing was added: the queue accepts no jobs (`closed`), or is `full`. length: that of a full queue."""

    reason: str
    length: int = 0


def refusal_of(reply: Sequence[Any]) -> Refusal | None:
    """The refusal that a reply is, if it is one."""
    return Refusal(reply[0].decode(), *reply[1:]) if isinstance(reply[0], bytes) else None
