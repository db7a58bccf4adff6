"""Deletes stored payloads and results that no job has: Redis and workers of Node remove jobs without them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from spark_bull.clock import epoch_ms
from spark_bull.errors import OptionError, WrongState, check_count
from spark_bull.keys import literal_glob, logical_queue
from spark_bull.options.urls import urls_of
from spark_bull.queue.core.handle import QueueHandle
from spark_bull.queue.jobs.objects import KEPT_FIELDS
from spark_bull.queue.monitor.find import SCANNED_KEYS
from spark_bull.store.connection import Connection

#: Age from which objects that no job has are deleted, ms: a write stages its jobs for a day before it commits.
SWEEP_AFTER_MS: Final = 2 * 86_400_000
#: End of the keys with the results of children.
_CHILDREN: Final = b":processed"


@dataclass(frozen=True)
class Swept:
    """What a sweep has found.

    Parameters:
      kept: number of objects that jobs have, or that are too young.
      deleted: number of deleted objects.
    """

    kept: int
    deleted: int


def sweep(handle: QueueHandle, older_than_ms: int = SWEEP_AFTER_MS) -> Swept:
    """Deletes the objects of a queue, or of all its shards, that no job has and that are older than `older_than_ms`.

    Raises OptionError, and WrongState if a write is not finished.
    """
    check_count("older_than_ms", older_than_ms)
    payloads, keys = handle.payloads, handle.keys
    if payloads.root is None:
        raise OptionError("expected `offload_to`, the folder of the objects, for a sweep, got none")
    if len(urls_of(handle.connection.settings.url)) > 1:
        raise OptionError("expected a queue on one server for a sweep, got `shard_urls` of several")
    if handle.connection.call("EXISTS", keys["open_writes"]):
        raise WrongState(
            f"expected no unfinished write to queue {keys.queue}, whose objects no job has yet, got some: `recover` "
            "finishes them",
            queue=keys.queue,
            job_id="",
        )
    before = epoch_ms() - older_than_ms
    # Before the jobs are read: a job that is added from now on has a younger object.
    found = payloads.found(keys)
    old = {one.path for one in found if one.modified_ms is not None and one.modified_ms < before}
    unused = old - (_used(handle) if old else set())
    return Swept(len(found) - len(unused), payloads.delete(unused))


def _used(handle: QueueHandle) -> set[str]:
    """The paths that hashes of a queue and its shards have. SCAN finds a job also if it changes its state meanwhile."""
    name = logical_queue(handle.keys.queue) or handle.keys.queue
    pattern = f"{literal_glob(handle.keys.prefix)}:{literal_glob(name)}*"
    used: set[str] = set()
    for node in handle.connection.primaries():
        cursor = None
        while cursor is None or int(cursor):
            cursor, keys = node.call("SCAN", cursor or b"0", "MATCH", pattern, "COUNT", SCANNED_KEYS, "TYPE", "hash")
            texts = [text for row in node.replies([("HMGET", key, *KEPT_FIELDS) for key in keys]) for text in row]
            for key in keys:
                if key.endswith(_CHILDREN):
                    texts += _values(node, key)
            used |= handle.payloads.paths(handle.keys, texts)
    return used


def _values(node: Connection, key: bytes) -> Iterator[bytes]:
    """The values of a large hash."""
    cursor = None
    while cursor is None or int(cursor):
        cursor, found = node.call("HSCAN", key, cursor or b"0", "COUNT", SCANNED_KEYS)
        yield from found.values()
