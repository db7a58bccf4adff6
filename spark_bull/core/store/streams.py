"""Reads several streams with one blocking command."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from spark_bull.core.options.redis_settings import RedisSettings
from spark_bull.core.store.connection import BlockingConnection
from spark_bull.core.store.scripts import Command

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
