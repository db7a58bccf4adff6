"""The registry of the queues that this package has written or worked: they are found without a scan of all keys.

It is a ZSET for each prefix: name of a queue -> when it was last noted, ms since 1970. A name whose queue is gone stays
for FORGET_MS, as a process that has noted it does not do so again within NOTE_S, and may write to it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from math import inf
from typing import Final, NamedTuple

from spark_bull.core.clock import epoch_ms, monotonic_s
from spark_bull.core.errors import PermissionDenied, SparkBullError
from spark_bull.core.keys import QUEUE_SIGNS, QueueKeys, queue_registry
from spark_bull.core.options.redis_settings import RedisSettings
from spark_bull.core.store.connection import Command, Connection

log = logging.getLogger("spark_bull")

#: A process notes a queue again after this time; after an error, later.
NOTE_S: Final = 60.0
AFTER_ERROR_S: Final = 600.0
#: A queue that is gone is forgotten when it was not noted for so long.
FORGET_MS: Final = 3_600_000
#: Queues whose keys one round trip looks for.
_CHECKED: Final = 1_000

#: When this process notes a queue again.
_next_at: Final[dict[tuple[RedisSettings, QueueKeys], float]] = {}


class Noted(NamedTuple):
    """A queue of the registry, when it was last noted, ms since 1970, and whether it exists."""

    queue: str
    at: int
    exists: bool


def note_queues(connection: Connection, queues: Iterable[QueueKeys]) -> None:
    """Notes queues of one prefix, unless this process did so within NOTE_S. Never fails: without it, jobs run, too."""
    now = monotonic_s()
    due = [keys for keys in queues if now >= _next_at.get((connection.settings, keys), 0.0)]
    if not due:
        return
    pause, at = NOTE_S, epoch_ms()
    try:
        connection.call("ZADD", queue_registry(due[0].prefix), *(part for keys in due for part in (at, keys.queue)))
    except SparkBullError as error:
        log.debug("could not note queues in their registry: %s", error)
        pause = inf if isinstance(error, PermissionDenied) else AFTER_ERROR_S
    _next_at.update({(connection.settings, keys): now + pause for keys in due})


def noted_queues(connection: Connection, prefix: str) -> Iterator[Noted]:
    """The queues of the registry."""
    replies = connection.call("ZRANGE", queue_registry(prefix), 0, -1, "WITHSCORES")
    entries = [(name.decode("utf-8", "replace"), int(score)) for name, score in replies]
    for first in range(0, len(entries), _CHECKED):
        part = entries[first : first + _CHECKED]
        found = connection.replies([existence_check(QueueKeys(name, prefix)) for name, _ in part])
        for (name, at), is_there in zip(part, found, strict=True):
            yield Noted(name, at, bool(is_there))


def forget_gone(connection: Connection, prefix: str) -> int:
    """Removes queues from the registry that do not exist any more and were not noted for long; returns how many."""
    before = epoch_ms() - FORGET_MS
    gone = [one for one in noted_queues(connection, prefix) if not one.exists and one.at < before]
    entries = [part for one in gone for part in (one.queue, one.at)]
    return int(connection.script("queues/forget", {"registry": queue_registry(prefix)}, {"entries": entries}))


def existence_check(keys: QueueKeys) -> Command:
    """The command that returns more than 0 if the queue has one of its characteristic keys, or an unfinished write."""
    return ("EXISTS", *[keys[name] for name in (*QUEUE_SIGNS, "open_writes")])
