"""Reads that take several round trips, as generators, so that reads of many queues share their round trips.

A step is a list of commands that a generator yields. The generator gets their replies, or the error of one of them is
raised in it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any, Final, TypeVar

from spark_bull.errors import ConnectionLost, PermissionDenied, SparkBullError
from spark_bull.store.connection import Command, Connection

T = TypeVar("T")
#: A read that returns a T.
Steps = Generator[Sequence[Command], list[Any], T]

#: Number of reads that share round trips: replies of all of them are in memory at a time.
TOGETHER: Final = 50


def run(connection: Connection, read: Steps[T]) -> T:
    """Runs one read. Raises its error."""
    return run_all(connection, [read])[0]


def run_all(connection: Connection, reads: Sequence[Steps[T]]) -> list[T]:
    """As `run_together`, but raises the error of the first read that has one."""
    found: list[T] = []
    for result in run_together(connection, reads):
        if isinstance(result, SparkBullError):
            raise result
        found.append(result)
    return found


def run_together(connection: Connection, reads: Sequence[Steps[T]]) -> list[T | SparkBullError]:
    """Runs reads, TOGETHER at a time, each step in one round trip; returns their results, or the errors they raise.

    Raises ConnectionLost, unless it is for missing rights, which may be those for one queue.
    """
    parts = (reads[start : start + TOGETHER] for start in range(0, len(reads), TOGETHER))
    return [result for part in parts for result in _run_part(connection, part)]


def _run_part(connection: Connection, reads: Sequence[Steps[T]]) -> list[T | SparkBullError]:
    results: dict[int, T | SparkBullError] = {}
    asked: dict[int, Sequence[Command]] = {}

    def advance(number: int, resume: Callable[[], Sequence[Command]]) -> None:
        try:
            asked[number] = resume()
        except StopIteration as end:
            results[number] = end.value
        except SparkBullError as error:
            results[number] = error

    for number, read in enumerate(reads):
        advance(number, partial(next, read))
    while asked:
        sent, asked = asked, {}
        for number, replies in zip(sent, _replies(connection, [*sent.values()]), strict=True):
            if isinstance(replies, SparkBullError):
                advance(number, partial(reads[number].throw, replies))
            else:
                advance(number, partial(reads[number].send, replies))
    return [results[number] for number in range(len(reads))]


def _replies(connection: Connection, steps: Sequence[Sequence[Command]]) -> Iterator[list[Any] | SparkBullError]:
    """The replies to each step, in one round trip; if there is an error, step by step."""
    try:
        replies = iter(connection.pipeline([*chain.from_iterable(steps)]))
    except SparkBullError as error:
        if isinstance(error, ConnectionLost) and not isinstance(error, PermissionDenied):
            raise
        if len(steps) == 1:
            yield error
            return
        for step in steps:
            yield from _replies(connection, [step])
        return
    for step in steps:
        yield list(islice(replies, len(step)))
