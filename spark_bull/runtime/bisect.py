"""One bad item must not take others down: what raises over many is halved until the bad ones stand alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")


def outcomes_of(items: Sequence[Item], run: Callable[[Sequence[Item]], Sequence[Made]]) -> list[Made | Exception]:
    """What `run` makes of each item, or the exception that it raises over that item alone.

    `run` gets all items first; when it raises, halves of them, and so on: about 2 k log2(n / k) further calls for k bad
    ones out of n. It must return one result per item, in their order.
    """
    if not items:
        return []
    try:
        return list(run(items))
    except Exception as error:
        if len(items) == 1:
            return [error]
    half = len(items) // 2
    return outcomes_of(items[:half], run) + outcomes_of(items[half:], run)
