"""Orphaned jobs: the hash of the job exists, but the job is in no state, so that no worker ever gets it. And remnants,
in any state: what workers have written to a job since it was removed.

A crash between two steps of another program, or keys that were deleted by hand, leave such jobs. A job that moves from
one state to another meanwhile is not removed: it is examined four times, at last in the script that removes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from spark_bull.core.errors import JobError, check_count
from spark_bull.core.keys import SCHEDULED, SEGMENTS
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.handle.walk import MAX_IDS
from spark_bull.core.queue.manage import verbs
from spark_bull.core.queue.manage.manage import remove
from spark_bull.core.queue.monitor.find import scan_queues
from spark_bull.core.queue.monitor.keyspace import scan_keys

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

    Scans all keys of the database twice: the name of the queue may be the beginning of that of another one.
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
            part = orphans[first : first + _REMOVED_AT_ONCE]
            removed += verbs.remove_orphans(handle, part, keys, window=MAX_IDS)
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
    """Whether a key can be a job. Ids with ':' can also be keys of another queue, except those of schedulers' jobs."""
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
