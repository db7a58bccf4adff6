"""Isolates bad items: a batch that raises is split in halves until each bad item is alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from spark_bull.run.job.interrupts import raise_if_interrupted


class Abandoned(Exception):
    """Raised by `run` for a reason that is not one of its items; run_bisected() stops and raises it again."""


Item = TypeVar("Item")
Outputs = TypeVar("Outputs")


def run_bisected(
    items: Sequence[Item], run: Callable[[Sequence[Item]], Outputs]
) -> Iterator[tuple[Sequence[Item], Outputs | BaseException]]:
    """Yields parts of the items with what `run` returns for them, or one item with the exception that it raises for it.

    The outputs of a half are yielded before the other half is run. `run` is called with all items first, and with each
    half when it raises: about 2 k log2(n / k) further calls for k bad items of n. Every exception is caught except
    Abandoned and the KeyboardInterrupt of a SIGINT that the process received.
    """
    if not items:
        return
    error_of_one: BaseException | None = None
    try:
        outputs = run(items)
    except Abandoned:
        raise
    except BaseException as error:
        raise_if_interrupted()
        if len(items) == 1:
            error_of_one = error
    else:
        yield items, outputs
        return
    if error_of_one is not None:
        yield items, error_of_one
        return
    half = len(items) // 2
    yield from run_bisected(items[:half], run)
    yield from run_bisected(items[half:], run)
