"""Deletes stored payloads and results that no job has: Redis and workers of Node remove jobs without them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spark_bull.core.clock import epoch_ms
from spark_bull.core.errors import OptionError, check_count
from spark_bull.core.keys import literal_glob, pattern_of, stages_of, whole_queue
from spark_bull.core.options.urls import urls_of
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.jobs.objects import KEPT_FIELDS
from spark_bull.core.queue.monitor.find import SCANNED_KEYS, exists
from spark_bull.core.queue.shards.layout import read_layout
from spark_bull.core.store.connection import Connection

if TYPE_CHECKING:
    from spark_bull.core.payloads.objects import Found

#: Age from which objects that no job has are deleted, ms: longer than it takes from storing one to adding its job.
SWEEP_AFTER_MS: Final = 2 * 86_400_000
#: Staged chunks that one call reads.
_CHUNKS: Final = 10
#: End of the keys with the results of children.
_CHILDREN: Final = ":processed"


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
    """Deletes the objects of a queue, or of all its shards, that no job and no write has, and that are older than
    `older_than_ms`.

    Raises OptionError, also if there is no such queue.
    """
    check_count("older_than_ms", older_than_ms)
    payloads, keys = handle.payloads, handle.keys
    if payloads.root is None:
        raise OptionError("expected `offload_to`, the folder of the objects, for a sweep, got none")
    _check_queue(handle)
    before = epoch_ms() - older_than_ms
    # Before the jobs are read: a job that is added from now on has a younger object.
    found = payloads.found(keys)
    old = _old(found, before)
    unused = old - _used(handle) if old else old
    if unused:
        # Meanwhile, a task that is repeated may have written one of them again.
        unused &= _old(payloads.found(keys), before)
    return Swept(len(found) - len(unused), payloads.delete(unused))


def _old(found: Iterable[Found], before: int) -> set[str]:
    return {one.path for one in found if one.modified_ms is not None and one.modified_ms < before}


def _check_queue(handle: QueueHandle) -> None:
    """Raises OptionError unless this Redis has the queue and all its shards."""
    connection, keys = handle.connection, handle.keys
    name = whole_queue(keys.queue)
    servers = len(urls_of(connection.settings.url))
    layout = read_layout(connection, keys.prefix, name) if servers == 1 else None
    servers = layout.servers if layout else servers
    if servers > 1:
        raise OptionError(
            f"expected a queue on one server for a sweep, got {keys.queue}, which is on {servers} (`shard_urls`)"
        )
    if layout is None and not exists(connection, keys):
        raise OptionError(
            f"expected a queue that exists for a sweep, which deletes the objects that no job has, found no queue "
            f"{keys.queue} (prefix {keys.prefix}, {connection.settings.where})"
        )


def _used(handle: QueueHandle) -> set[str]:
    """The paths that jobs of a queue and its shards have, and writes and parents of any queue with the same prefix."""
    prefix, queue = handle.keys.prefix, whole_queue(handle.keys.queue)
    used: set[str] = set()
    # Before the jobs: a chunk that is gone here has become jobs. It may have jobs of several queues, in a flow.
    for node, keys in _hashes(handle, stages_of(prefix)):
        for key in keys:
            for chunk in _values(node, key, _CHUNKS):
                used |= handle.payloads.paths_within(handle.keys, chunk)
    for node, keys in _hashes(handle, f"{literal_glob(prefix)}:{literal_glob(queue)}*"):
        rows = node.replies([("HMGET", key, *KEPT_FIELDS) for key in keys])
        used |= handle.payloads.paths(handle.keys, (text for row in rows for text in row))
    for node, keys in _hashes(handle, pattern_of(prefix) + _CHILDREN):
        for key in keys:
            used |= handle.payloads.paths(handle.keys, _values(node, key, SCANNED_KEYS))
    return used


def _hashes(handle: QueueHandle, pattern: str) -> Iterator[tuple[Connection, list[bytes]]]:
    """The HASHes with such keys, by server. SCAN finds a job also if it changes its state meanwhile."""
    for node in handle.connection.primaries():
        cursor = None
        while cursor is None or int(cursor):
            cursor, keys = node.call("SCAN", cursor or b"0", "MATCH", pattern, "COUNT", SCANNED_KEYS, "TYPE", "hash")
            yield node, keys


def _values(node: Connection, key: bytes, count: int) -> Iterator[bytes]:
    """The values of a large hash. count: of those that one call reads."""
    cursor = None
    while cursor is None or int(cursor):
        cursor, found = node.call("HSCAN", key, cursor or b"0", "COUNT", count)
        yield from found.values()
