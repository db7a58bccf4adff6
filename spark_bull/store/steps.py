"""Reads that take several round trips, as generators, so that reads of many queues share their round trips.

A step is a list of commands that a generator yields. The generator gets their replies, or the error of one of them is
raised in it. Redis runs all commands of a round trip in a row, so a step with many elements is a LargeStep.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
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


class LargeStep(list[Command]):
    """Commands that read hundreds of elements: they have a round trip of their own."""


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

    Raises ConnectionLost when Redis can't be reached, or refuses the commands of all reads, as a cluster that is down
    does. If it refuses those of some, such as of a queue on another node, ConnectionLost is the result of these reads.
    """
    parts = (reads[start : start + TOGETHER] for start in range(0, len(reads), TOGETHER))
    results = [result for part in parts for result in _run_part(connection, part)]
    refused = [result for result in results if isinstance(result, ConnectionLost)]
    if refused and len(refused) == len(results):
        raise refused[0]
    return results


def _run_part(connection: Connection, reads: Sequence[Steps[T]]) -> list[T | SparkBullError]:
    results: dict[int, T | SparkBullError] = {}
    asked: dict[int, Sequence[Command]] = {}

    def advance(number: int, resume: Callable[[], Sequence[Command]]) -> None:
        try:
            asked[number] = resume()
        except StopIteration as end:
            results[number] = end.value
        except SparkBullError as error:
            if _is_lost(connection, error):
                raise
            results[number] = error

    for number, read in enumerate(reads):
        advance(number, partial(next, read))
    while asked:
        sent, asked = asked, {}
        for trip in _round_trips(sent):
            for number, replies in zip(trip, _replies(connection, [sent[number] for number in trip]), strict=True):
                if isinstance(replies, SparkBullError):
                    advance(number, partial(reads[number].throw, replies))
                else:
                    advance(number, partial(reads[number].send, replies))
    return [results[number] for number in range(len(reads))]


def _round_trips(steps: Mapping[int, Sequence[Command]]) -> Iterator[Sequence[int]]:
    """The numbers of the steps of each round trip."""
    large = [number for number, step in steps.items() if isinstance(step, LargeStep)]
    if len(large) < len(steps):
        yield [number for number in steps if number not in large]
    yield from ([number] for number in large)


def _replies(connection: Connection, steps: Sequence[Sequence[Command]]) -> Iterator[list[Any] | SparkBullError]:
    """The replies to each step, in one round trip; if there is an error, step by step."""
    try:
        replies = iter(connection.pipeline([*chain.from_iterable(steps)]))
    except SparkBullError as error:
        if len(steps) == 1:
            yield error
            return
        if _is_lost(connection, error):
            raise
        with closing(_impatient(connection)) as again:
            for step in steps:
                yield from _replies(again, [step])
        return
    for step in steps:
        yield list(islice(replies, len(step)))


def _is_lost(connection: Connection, error: SparkBullError) -> bool:
    """Whether Redis can't be reached at all, in contrast to an error of some commands."""
    if not isinstance(error, ConnectionLost) or isinstance(error, PermissionDenied):
        return False
    with closing(_impatient(connection)) as again:
        try:
            again.call("PING")
        except PermissionDenied:
            return False
        except ConnectionLost:
            return True
    return False


def _impatient(connection: Connection) -> Connection:
    """A connection to the same Redis that repeats a call only once: those before have waited as long as they may."""
    return Connection(replace(connection.settings, retry_ms=1))
