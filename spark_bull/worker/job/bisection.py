"""Isolates bad items: a batch that raises is split in halves until each bad item is alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from spark_bull.worker.job.interrupts import raise_if_interrupted


class Abandoned(Exception):
    """Raised by `run` for a reason that is not one of its items; run_bisected() stops and raises it again."""


Item = TypeVar("Item")
Output = TypeVar("Output")


def run_bisected(
    items: Sequence[Item], run: Callable[[Sequence[Item]], Sequence[Output]]
) -> list[Output | BaseException]:
    """Returns the output of `run` for each item, or the exception that it raises for that item alone.

    `run` is called with all items first, and with each half when it raises: about 2 k log2(n / k) further calls for k
    bad items of n. It must return one output per item, in order. Every exception is caught except Abandoned and the
    KeyboardInterrupt of a SIGINT that the process received.
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
