"""One bad item must not take others down: what raises over many is halved until the bad ones stand alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from spark_bull.worker.interrupts import raise_if_interrupted


class Abandoned(Exception):
    """Raised over items for what is no item's fault: no others are tried."""


Item = TypeVar("Item")
Made = TypeVar("Made")


def run_bisected(items: Sequence[Item], run: Callable[[Sequence[Item]], Sequence[Made]]) -> list[Made | BaseException]:
    """What `run` makes of each item, or the exception that it raises over that item alone.

    `run` gets all items first; when it raises, halves of them, and so on: about 2 k log2(n / k) further calls for k bad
    ones out of n. It must return one result per item, in their order. Everything that it raises is caught, except for
    Abandoned, and the KeyboardInterrupt of a SIGINT that the process received.
    """
    if not items:
        return []
    try:
        return list(run(items))
    except Abandoned:
        raise
    except BaseException as error:
        raise_if_interrupted()
        if len(items) == 1:
            return [error]
    half = len(items) // 2
    return run_bisected(items[:half], run) + run_bisected(items[half:], run)
