"""Finds the queues of a Redis, and the workers that are connected to it."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

import msgpack

from spark_bull.core.dialects.base import Dialect
from spark_bull.core.dialects.fields import integer_of, text_of
from spark_bull.core.dialects.registry import dialect_of
from spark_bull.core.keys import QUEUE_SIGNS, QueueKeys, literal_glob, pattern_of, queue_of
from spark_bull.core.model.guards import pause_reason
from spark_bull.core.queue.handle.admission import intake_check
from spark_bull.core.queue.handle.handle import QueueHandle, existence_check, noted_queues
from spark_bull.core.store.connection import Connection
from spark_bull.core.store.round_trips import RoundTrips, run, run_together

log = logging.getLogger("spark_bull")

#: Keys that one call scans.
SCANNED_KEYS: Final = 1_000
#: Queues of names that their dialect refuses, which this process has logged.
_told: Final[set[QueueKeys]] = set()


def is_glob(queue: str) -> bool:
    return any(sign in queue for sign in "*?[")


def find_queues(connection: Connection, prefix: str, glob: str = "*") -> list[str]:
    """Names of the queues that match, sorted: `*`, `?`, `[abc]`, `[!abc]`.

    Scans all keys of the database, SCANNED_KEYS per call; in a cluster, of all primaries. Unless the settings say that
    keys are scanned, the queues of the registry are taken.
    """
    found = scan_queues(connection, prefix)
    if not connection.settings.scan_keys:
        found = (one.queue for one in noted_queues(connection, prefix) if one.exists)
    names = set(matches(found, glob))
    return sorted(names - _foreign(connection, prefix, [name for name in names if ":" in name]))


def _foreign(connection: Connection, prefix: str, names: Sequence[str]) -> set[str]:
    """The names that no queue of their dialect has, which are logged once: keys of a longer prefix look like these."""
    queues = [QueueKeys(name, prefix) for name in names]
    found = run_together(connection, [dialect_of(keys, "auto", guesses=True) for keys in queues])
    foreign = {
        keys
        for keys, dialect in zip(queues, found, strict=True)
        if isinstance(dialect, Dialect) and not dialect.allows(keys.queue)
    }
    new = sorted(keys.queue for keys in foreign - _told)
    _told.update(foreign)
    if new:
        log.warning(
            "skipped by a glob: %d of prefix %s, such as %s. A name with ':' belongs to another prefix, or to a queue "
            "of an old BullMQ: give the name to inspect, collect or manage it",
            len(new),
            prefix,
            new[0],
        )
    return {keys.queue for keys in foreign}


def select_queues(connection: Connection, prefix: str, selection: Sequence[str]) -> list[str]:
    """The queues that a selection of names and globs means, without duplicates, in its order.

    A name is selected whether or not its queue exists, a glob stands for the existing queues that it matches. The keys
    of the database are scanned once, or not at all without a glob.
    """
    existing = find_queues(connection, prefix) if any(map(is_glob, selection)) else []
    found: dict[str, None] = {}
    for name in selection:
        found |= dict.fromkeys(matches(existing, name) if is_glob(name) else [name])
    return list(found)


def matches(queues: Iterable[str], glob: str) -> list[str]:
    """The names that a glob matches: `*`, `?`, `[abc]`, `[!abc]`."""
    return [queue for queue in queues if fnmatchcase(queue, glob)]


def scan_queues(connection: Connection, prefix: str) -> Iterator[str]:
    """Names of the queues, some of them repeatedly, while all keys of the database are scanned."""
    asked = {
        "pattern": pattern_of(prefix),
        "count": SCANNED_KEYS,
        "signs": msgpack.packb(
            {sign.rpartition(":")[2]: kind for sign, kind in QUEUE_SIGNS.items()}, use_bin_type=False
        ),
    }
    for node in connection.primaries():
        cursor = None
        while cursor != b"0":
            cursor, *keys = node.script("read/queues", {}, {"cursor": cursor or b"0", **asked})
            for key in keys:
                # A key that is not UTF-8 is none of a queue: no library can name it.
                with suppress(UnicodeDecodeError):
                    if queue := queue_of(key.decode(), prefix):
                        yield queue


def exists(connection: Connection, keys: QueueKeys) -> bool:
    """Whether the queue exists: it has a characteristic key, an unfinished write, or a group with limits."""
    return bool(connection.call(*existence_check(keys)))


def warn_of_missing(connection: Connection, prefix: str, queues: Iterable[str]) -> None:
    """Logs which of these queues do not exist: a name may be misspelled."""
    for queue in queues:
        if not exists(connection, QueueKeys(queue, prefix)):
            log.warning(
                "queue %s not found at Redis %s with prefix=%s: no jobs are read until it exists",
                queue,
                connection.settings.where,
                prefix,
            )


@dataclass(frozen=True)
class QueueSummary:
    """Settings of a queue. `version`: BullMQ version that last opened it. `concurrency`: its limit over all workers.
    `intake_open`: whether it accepts jobs of spark_bull. `max`, `duration_ms`: its rate limit over all workers.
    `pause_reason`: why and until when a guard has paused it.
    """

    paused: bool
    version: str | None
    concurrency: int | None
    intake_open: bool = True
    max: int | None = None
    duration_ms: int | None = None
    pause_reason: str | None = None


def describe(handle: QueueHandle) -> QueueSummary:
    return run(handle.connection, describing(handle))


def describing(handle: QueueHandle) -> RoundTrips[QueueSummary]:
    """The steps of `describe`."""
    (version, *limits), is_closed, *marks = yield [
        ("HMGET", handle.keys["meta"], "version", "concurrency", "max", "duration"),
        intake_check(handle.keys),
        *handle.dialect.pause_marks(handle.keys),
    ]
    concurrency, most, duration = map(integer_of, limits)
    reason = next(filter(None, map(pause_reason, marks)), None)
    return QueueSummary(
        any(marks), text_of(version) or handle.dialect.version, concurrency, not is_closed, most, duration, reason
    )


@dataclass(frozen=True)
class ConnectedWorker:
    """A worker's connection, from CLIENT LIST. `name`: name of the worker, or None; times in s."""

    name: str | None
    address: str
    age: int
    idle: int


def workers(connection: Connection, keys: QueueKeys) -> list[ConnectedWorker]:
    """The connected workers of a queue, by the client names of their connections.

    Bull 1 sets no names: its workers are not found. Bull 3 sets them for all connections of a queue, not just workers.
    """
    return workers_among(connection.clients(), keys)


def workers_among(clients: Iterable[Mapping[str, str]], keys: QueueKeys) -> list[ConnectedWorker]:
    """The workers of a queue among the connections of a Redis."""
    found = []
    for client in clients:
        own, separator, name = client["name"].partition(":w:")
        if own == keys.client_name:
            age, idle = int(client["age"]), int(client["idle"])
            found.append(ConnectedWorker(name if separator else None, client["addr"], age, idle))
    return found


def clients_by_queue(connection: Connection) -> Mapping[str, int]:
    """The number of connections of workers, by the client name of their queue. Raises PermissionDenied."""
    return Counter(client["name"].partition(":w:")[0] for client in connection.clients())


def scan_keys(connection: Connection, prefix: str, queues: Container[bytes]) -> Iterator[Mapping[bytes, list[bytes]]]:
    """All keys of queues with this prefix, in parts: queue -> what follows its name in its keys, without the ':'.

    A key belongs to the longest of the names that it may start with; keys of other queues are left out. A part may
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


#: In place of a name, to get the beginning of a key.
_NOBODY: Final = ""


@dataclass(frozen=True)
class Ledger:
    """The ledger of a reader of results. `entries`: those that are not committed; `expires_in_ms`: None: never."""

    queue: str
    reader: str
    owner: str | None
    entries: int
    expires_in_ms: int | None


def ledgers(handle: QueueHandle) -> list[Ledger]:
    """The ledgers of a queue, by reader. Scans all keys of the database."""
    start, _, end = handle.keys.results(_NOBODY)["track"].rpartition("::")
    keys = _scan(handle, f"{start}:", f":{end}")
    return [_ledger(handle, key[len(start) + 1 : -len(end) - 1]) for key in keys]


def _ledger(handle: QueueHandle, reader: str) -> Ledger:
    keys = handle.keys.results(reader)
    owner, entries, ttl = handle.connection.pipeline(
        [("HGET", keys["track"], "owner"), ("LLEN", keys["ledger"]), ("PTTL", keys["track"])]
    )
    return Ledger(handle.keys.queue, reader, text_of(owner), int(entries), int(ttl) if ttl >= 0 else None)


def workers_of_spark(handle: QueueHandle) -> Sequence[str]:
    """Names of the workers of Spark whose slots have reported. Scans all keys of the database."""
    start = handle.keys.slots(_NOBODY)
    return [key[len(start) :] for key in _scan(handle, start, "")]


def _scan(handle: QueueHandle, start: str, end: str) -> list[str]:
    pattern = f"{literal_glob(start)}*{literal_glob(end)}"
    return sorted({key.decode("utf-8", "replace") for keys in scan(handle.connection, pattern) for key in keys})
