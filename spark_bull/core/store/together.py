"""Calls for many queues: divided by where they go, and several at a time, in threads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from spark_bull.core.errors import SparkBullError

S = TypeVar("S")
T = TypeVar("T")

#: Number of calls at a time.
TOGETHER: Final = 16


def groups_of(items: Iterable[S], place_of: Callable[[S], int]) -> list[list[S]]:
    """Divides items by their place, in the order of the first item of each."""
    groups: dict[int, list[S]] = defaultdict(list)
    for item in items:
        groups[place_of(item)].append(item)
    return [*groups.values()]


def batches_together(items: Sequence[S], call: Callable[[S], T]) -> Iterator[list[tuple[S, T | SparkBullError]]]:
    """Calls `call(item)` for TOGETHER items at a time; yields the items with the results, or the errors raised.

    The next calls begin when the caller asks for their results.
    """

    def result_of(item: S) -> T | SparkBullError:
        try:
            return call(item)
        except SparkBullError as error:
            return error

    if len(items) == 1:
        yield [(items[0], result_of(items[0]))]
        return
    with ThreadPoolExecutor(TOGETHER, thread_name_prefix="spark-bull-together") as pool:
        for start in range(0, len(items), TOGETHER):
            batch = items[start : start + TOGETHER]
            yield list(zip(batch, pool.map(result_of, batch), strict=True))


def all_together(items: Sequence[S], call: Callable[[S], T]) -> list[T]:
    """As `batches_together`; returns the results. Raises the first error of a batch."""
    results: list[T] = []
    for batch in batches_together(items, call):
        for _, result in batch:
            if isinstance(result, SparkBullError):
                raise result
            results.append(result)
    return results
