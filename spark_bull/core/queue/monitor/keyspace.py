"""The keys of queues, read with SCAN in parts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping

from spark_bull.core.keys import pattern_of
from spark_bull.core.queue.monitor.find import SCANNED_KEYS
from spark_bull.core.store.connection import Connection


def scan_keys(connection: Connection, prefix: str, queues: Container[bytes]) -> Iterator[Mapping[bytes, list[bytes]]]:
    """All keys of queues with this prefix, in parts: queue -> what follows its name in its keys, without the ':'.

    A key belongs to the longest of the names that it may start with; those of other queues are left out. A part may
    repeat keys of another one.
    """
    for keys in scan(connection, pattern_of(prefix)):
        by_queue: dict[bytes, list[bytes]] = defaultdict(list)
        for key in keys:
            queue, suffix = _split(key[len(prefix.encode()) + 1 :], queues)
            if queue:
                by_queue[queue].append(suffix)
        yield by_queue


def scan(connection: Connection, pattern: str) -> Iterator[list[bytes]]:
    """The keys that match, in parts, some of them repeatedly. Each call examines SCANNED_KEYS of the database."""
    for node in connection.primaries():
        cursor = None
        while cursor is None or int(cursor):
            cursor, keys = node.call("SCAN", cursor or b"0", "MATCH", pattern, "COUNT", SCANNED_KEYS)
            yield keys


def _split(name: bytes, queues: Container[bytes]) -> tuple[bytes, bytes]:
    """The queue and the rest of a key without its prefix; an empty queue if it is none of them."""
    queue, colon, _ = name.rpartition(b":")
    while colon:
        if queue in queues:
            return queue, name[len(queue) + 1 :]
        queue, colon, _ = queue.rpartition(b":")
    return b"", name
