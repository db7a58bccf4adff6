"""Reads that take several round trips, as generators that share round trips; and blocking reads of several streams.

A step is a list of commands that a generator yields. The generator gets their replies, or the error of one of them is
raised in it. Redis runs all commands of a round trip in a row, so a step with many elements is a LargeRead.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import chain, count, islice
from math import inf
from typing import Any, Final, TypeVar

from spark_bull.core.clock import monotonic_s
from spark_bull.core.errors import ConnectionLost, PermissionDenied, QueueDamaged, SparkBullError
from spark_bull.core.options.redis_settings import RedisSettings
from spark_bull.core.store.connection import BlockingConnection, Connection
from spark_bull.core.store.errors import code_of
from spark_bull.core.store.scripts import Command

T = TypeVar("T")
#: A read that returns a T.
RoundTrips = Generator[Sequence[Command], list[Any], T]

#: Number of reads that share round trips: replies of all of them are in memory at a time.
TOGETHER: Final = 50


class LargeRead(list[Command]):
    """Commands that read hundreds of elements: they have a round trip of their own."""


def readable(commands: Sequence[Command]) -> RoundTrips[list[Any]]:
    """The replies to commands; None for one on a key of another type."""
    try:
        return (yield commands)
    except QueueDamaged:
        if len(commands) == 1:
            return [None]
    found: list[Any] = []
    for command in commands:
        found += yield from readable([command])
    return found


def run(connection: Connection, read: RoundTrips[T]) -> T:
    """Runs one read. Raises its error."""
    return run_all(connection, [read])[0]


def run_all(connection: Connection, reads: Sequence[RoundTrips[T]]) -> list[T]:
    """As `run_together`, but raises the error of the first read that has one."""
    found: list[T] = []
    for result in run_together(connection, reads):
        if isinstance(result, SparkBullError):
            raise result
        found.append(result)
    return found


def run_together(
    connection: Connection, reads: Sequence[RoundTrips[T]], until_s: float = inf
) -> list[T | SparkBullError]:
    """Runs reads, TOGETHER at a time, each step in one round trip; returns their results, or the errors they raise.

    until_s: time by the monotonic clock from which on no step begins: only the first reads, at least one, have results
    then. Raises ConnectionLost when Redis can't be reached, or refuses the commands of all reads, as a cluster that is
    down does. If it refuses the commands of some reads, such as of a queue on another node, ConnectionLost is the
    result of these reads.
    """
    results: list[T | SparkBullError] = []
    while len(results) < len(reads) and (not results or monotonic_s() < until_s):
        part = reads[len(results) : len(results) + TOGETHER]
        found = _run_part(connection, part, until_s, fewest=0 if results else 1)
        results += found
        if len(found) < len(part):
            break
    refused = [result for result in results if isinstance(result, ConnectionLost)]
    if refused and len(refused) == len(results):
        raise refused[0]
    return results


def _run_part(
    connection: Connection, reads: Sequence[RoundTrips[T]], until_s: float, fewest: int
) -> list[T | SparkBullError]:
    """The results of all reads or, when the time is over, of the first ones that have ended, `fewest` at least."""
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

    def exchange(numbers: Sequence[int]) -> None:
        steps = [asked.pop(number) for number in numbers]
        for number, replies in zip(numbers, _replies(connection, steps), strict=True):
            if isinstance(replies, SparkBullError):
                advance(number, partial(reads[number].throw, replies))
            else:
                advance(number, partial(reads[number].send, replies))

    for number, read in enumerate(reads):
        advance(number, partial(next, read))
    while asked:
        shared = [number for number, step in asked.items() if not isinstance(step, LargeRead)]
        if shared:
            exchange(shared)
        # One read after the other, so that the first ones have ended when the time is over.
        for number in sorted(asked):
            while isinstance(asked.get(number), LargeRead) and (number < fewest or monotonic_s() < until_s):
                exchange([number])
        if monotonic_s() >= until_s:
            kept = max(fewest, _ended(results))
            for number in [number for number in asked if number >= kept]:
                del asked[number]
                reads[number].close()
    return [results[number] for number in range(_ended(results))]


def _ended(results: Mapping[int, object]) -> int:
    """The number of reads from the first one on that have ended."""
    return next(number for number in count() if number not in results)


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
            again.primaries()
            # A cluster refuses a command if it is down, or has no node for a slot.
            is_refused = error.__cause__ is not None and code_of(error.__cause__) == "CLUSTERDOWN"
            return is_refused and b"cluster_state:fail" in again.call("CLUSTER", "INFO")
        except PermissionDenied:
            return False
        except ConnectionLost:
            return True


def _impatient(connection: Connection) -> Connection:
    """A connection to the same Redis that repeats a call only once: those before have waited as long as they may."""
    return connection.having(retry_ms=1)


S = TypeVar("S")

#: Number of calls at a time.
CALLS_TOGETHER: Final = 16


def groups_of(items: Iterable[S], place_of: Callable[[S], int]) -> list[list[S]]:
    """Divides items by their place, in the order of the first item of each."""
    groups: dict[int, list[S]] = defaultdict(list)
    for item in items:
        groups[place_of(item)].append(item)
    return [*groups.values()]


def batches_together(items: Sequence[S], call: Callable[[S], T]) -> Iterator[list[tuple[S, T | SparkBullError]]]:
    """Calls `call(item)` for CALLS_TOGETHER items at a time; yields the items with the results, or the errors raised.

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
    with ThreadPoolExecutor(CALLS_TOGETHER, thread_name_prefix="spark-bull-together") as pool:
        for start in range(0, len(items), CALLS_TOGETHER):
            batch = items[start : start + CALLS_TOGETHER]
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


#: Polling interval for streams in several slots of a cluster or on several servers, where no command can block on all.
POLL_S: Final = 0.2

#: Id and fields of an entry.
Entry = tuple[bytes, Mapping[bytes, bytes]]


class StreamReader:
    """Reads entries of several streams, on its own connection. wait_s: maximum time that a call blocks."""

    def __init__(self, settings: RedisSettings, wait_s: float) -> None:
        self._connection = BlockingConnection(settings, wait_s)

    def read(self, last: Mapping[str, str], count: int) -> dict[str, Sequence[Entry]]:
        """Returns, without waiting, up to `count` entries of each stream after these ids; streams without are left out.

        Raises ConnectionLost.
        """
        commands = [("XREAD", "COUNT", count, "STREAMS", stream, entry) for stream, entry in last.items()]
        found: dict[str, Sequence[Entry]] = {}
        for reply in self._connection.pipeline(commands):
            found |= _by_stream(reply)
        return found

    def wait(self, last: Mapping[str, str], count: int, wait_s: float) -> dict[str, Sequence[Entry]]:
        """As `read`, but waits for the first entry, at most `wait_s`."""
        if len({self._connection.site_of(stream) for stream in last}) == 1:
            block_ms = max(1, int(wait_s * 1000))
            command: Command = ("XREAD", "COUNT", count, "BLOCK", block_ms, "STREAMS", *last.keys(), *last.values())
            return _by_stream(self._connection.call(*command))
        found = self.read(last, count)
        if not found:
            time.sleep(min(POLL_S, wait_s))
        return found

    def stop_retrying(self) -> None:
        """Lets a call that waits in another thread raise its next error."""
        self._connection.stop_retrying()

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()


def _by_stream(
    reply: Mapping[bytes, list[Sequence[Entry]]] | list[tuple[bytes, Sequence[Entry]]] | None,
) -> dict[str, Sequence[Entry]]:
    """The reply is a map in RESP3, whose values redis-py wraps in a list, and a list of pairs in RESP2."""
    if isinstance(reply, Mapping):
        return {name.decode(): entries[0] for name, entries in reply.items()}
    return {name.decode(): entries for name, entries in reply or ()}
