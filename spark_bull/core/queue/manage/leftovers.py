"""Orphaned jobs, which exist but are in no state, so that no worker gets them; and remnants of jobs that were removed.

A remnant, in any state, is what workers have written to a job since it was removed. An orphan is left by a crash
between two steps of another program, or by keys that were deleted by hand. A job that moves from one state to another
meanwhile is not removed: it is examined four times, at last in the script that removes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from spark_bull.core.clock import epoch_ms
from spark_bull.core.errors import JobError, OptionError, check_count
from spark_bull.core.keys import SCHEDULED, SEGMENTS, literal_glob, pattern_of, stages_of, whole_queue
from spark_bull.core.options.redis_settings import urls_of
from spark_bull.core.queue.handle.handle import SWEEP_AFTER_MS, QueueHandle
from spark_bull.core.queue.handle.walk import MAX_IDS
from spark_bull.core.queue.jobs.objects import KEPT_FIELDS
from spark_bull.core.queue.manage.manage import remove
from spark_bull.core.queue.monitor.find import SCANNED_KEYS, exists, scan_keys, scan_queues
from spark_bull.core.queue.shards.layout import read_layout
from spark_bull.core.store.connection import Connection

if TYPE_CHECKING:
    from spark_bull.core.payloads.objects import Found


#: Keys of the states of all dialects.
_STATES: Final = ("wait", "active", "paused", "delayed", "prioritized", "waiting_children", "completed", "failed")
_NO_JOBS: Final = frozenset(name.encode() for name in SEGMENTS.values())
#: Jobs that are compared with the lists at once: as many of their ids are in memory.
_CANDIDATES: Final = 100_000
#: Jobs that one call examines, and removes: each takes several commands, and a search in the ends of lists.
_EXAMINED: Final = 200
_REMOVED_AT_ONCE: Final = 10


@dataclass
class OrphanSearch:
    """Finds the orphaned jobs of a queue among its keys, which `look` takes in parts; `finish` returns their ids.

    `remnants` then has the ids of remnants.
    """

    handle: QueueHandle
    remnants: set[bytes] = field(default_factory=set)
    _unexamined: list[bytes] = field(default_factory=list)
    _candidates: set[bytes] = field(default_factory=set)
    _suspects: list[bytes] = field(default_factory=list)

    def look(self, suffixes: Iterable[bytes]) -> None:
        """Examines keys of the queue, given by what follows the queue's name in them, when there are enough of them."""
        self._unexamined += filter(_may_be_job, suffixes)
        if len(self._unexamined) >= _EXAMINED:
            self._examine()
        if len(self._candidates) >= _CANDIDATES:
            self._compare()

    def finish(self) -> list[bytes]:
        """The ids of the jobs that were in no state twice."""
        self._examine()
        self._compare()
        orphans: list[bytes] = []
        for start in range(0, len(self._suspects), _CANDIDATES):
            part = self._suspects[start : start + _CANDIDATES]
            orphans += _unlisted(self.handle, part)
        return sorted(orphans)

    def _examine(self) -> None:
        for unplaced, remnants in _examined(self.handle, self._unexamined):
            self._candidates.update(unplaced)
            self.remnants.update(remnants)
        self._unexamined = []

    def _compare(self) -> None:
        self._suspects += _without_listed(self.handle, self._candidates)
        self._candidates = set()


def remove_all_orphans(handle: QueueHandle, limit: int = 0) -> int:
    """Finds the orphaned jobs of a queue, and removes at most `limit` of them (0: all); returns their number.

    Scans all keys of the database twice: the name of the queue may be the beginning of another queue's name.
    """
    check_count("limit", limit)
    own, search = handle.keys.queue.encode(), OrphanSearch(handle)
    names = {queue.encode() for queue in scan_queues(handle.connection, handle.keys.prefix)} | {own}
    for part in scan_keys(handle.connection, handle.keys.prefix, names):
        search.look(part.get(own, ()))
    orphans = search.finish()
    return remove_orphans(handle, orphans[:limit] if limit else orphans)


def remove_orphans(handle: QueueHandle, job_ids: Sequence[bytes]) -> int:
    """Removes those jobs that are still in no state; returns their number."""
    removed, keys = 0, [handle.keys[name] for name in _STATES]
    for start in range(0, len(job_ids), _CANDIDATES):
        orphans = _unlisted(handle, job_ids[start : start + _CANDIDATES])
        for first in range(0, len(orphans), _REMOVED_AT_ONCE):
            args = {"ids": orphans[first : first + _REMOVED_AT_ONCE], "window": MAX_IDS}
            removed += int(handle.run_once("remove_orphans", args, states=keys))
    return removed


def remove_remnants(handle: QueueHandle, job_ids: Iterable[bytes]) -> int:
    """Removes these remnants from their states, unless a worker has locked them; returns how many are removed."""
    removed = 0
    for job_id in job_ids:
        with suppress(JobError, UnicodeDecodeError):
            remove(handle, job_id.decode())
            removed += 1
    return removed


def _may_be_job(suffix: bytes) -> bool:
    """Whether a key can be a job. Ids with ':' can also be keys of another queue, except ids of schedulers' jobs."""
    return suffix not in _NO_JOBS and (b":" not in suffix or suffix.startswith(SCHEDULED.encode()))


def _examined(handle: QueueHandle, job_ids: Iterable[bytes]) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """For each part of the ids: which are jobs in no state, or in one that is a list, and which are remnants."""
    states, remaining = [handle.keys[name] for name in _STATES], iter(job_ids)
    while part := list(islice(remaining, _EXAMINED)):
        yield handle.connection.script(
            "read/unplaced",
            {"damaged": handle.keys["damaged"], "states": states},
            {"base": handle.keys.base, "ids": part},
        )


def _unlisted(handle: QueueHandle, job_ids: Iterable[bytes]) -> list[bytes]:
    """Which of some ids are jobs in no state."""
    return _without_listed(handle, {one for unplaced, _ in _examined(handle, job_ids) for one in unplaced})


def _without_listed(handle: QueueHandle, job_ids: set[bytes]) -> list[bytes]:
    """Those ids that no state that is a list has. Jobs move from `wait` to `active`, which is read after it."""
    left = set(job_ids)
    for name in ("paused", "wait", "active"):
        position, length = 0, MAX_IDS
        while left and length == MAX_IDS:
            ids = handle.connection.call("LRANGE", handle.keys[name], position, position + MAX_IDS - 1)
            left.difference_update(ids)
            position, length = position + len(ids), len(ids)
    return list(left)


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
        rows = node.pipeline([("HMGET", key, *KEPT_FIELDS) for key in keys], raw=True)
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
