"""Samples of the jobs of a queue, in steps: reads of many queues with few jobs share their round trips."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from spark_bull.core.dialects.fields import Raw
from spark_bull.core.errors import DialectError
from spark_bull.core.queue.handle.handle import CHUNK_SIZE, QueueHandle
from spark_bull.core.queue.handle.job_fields import Columns
from spark_bull.core.queue.jobs.read import hash_fields
from spark_bull.core.store.connection import Command
from spark_bull.core.store.steps import LargeStep, Steps

#: A queue with at most this number of sampled jobs shares its round trips with other queues.
_FEW: Final = 20
#: Minimum number of windows of a sample that leaves jobs out.
_WINDOWS: Final = 20
#: Maximum number of ids of a window, and of windows of a round trip.
_MOST_IDS, _TOGETHER = 1_000, 10


class Part(NamedTuple):
    """What to read of a state: at most about `most` of the `among` jobs that have entered it last."""

    state: str
    among: int
    most: int

    @property
    def size(self) -> int:
        """The number of jobs to read."""
        return min(self.among, self.most)

    def windows(self) -> Iterator[tuple[int, int]]:
        """The first and the last place of each window; with jobs left out, at equal distances from end to end."""
        if self.among <= self.most:
            starts: Iterable[int] = range(0, self.among, _MOST_IDS)
            size = min(self.among, _MOST_IDS)
        else:
            size = max(1, min(CHUNK_SIZE, self.most // _WINDOWS))
            number = max(2, self.most // size)
            starts = (n * (self.among - size) // (number - 1) for n in range(number))
        yield from ((start, min(start + size, self.among) - 1) for start in starts)


def sampling(handle: QueueHandle, parts: Sequence[Part], columns: Iterable[str]) -> Steps[list[Columns]]:
    """Of each part, the values of the hash fields of some of FIELDS. Jobs that are removed meanwhile are left out.

    The finished jobs of bull-1 have no order: any of them are read.
    """
    is_large = sum(part.size for part in parts) > _FEW
    ids = yield from _ids(handle, parts, is_large)
    names, unique = hash_fields(columns), [*dict.fromkeys(job_id for found in ids for job_id in found)]
    rows: dict[bytes, Sequence[Raw]] = {}
    for start in range(0, len(unique), CHUNK_SIZE):
        rows |= yield from _rows(handle, unique[start : start + CHUNK_SIZE], names, is_large)
    found = [[rows[job_id] for job_id in of_part if job_id in rows] for of_part in ids]
    return [{name: [row[i] for row in of_part] for i, name in enumerate(names)} for of_part in found]


def _step(commands: Sequence[Command], is_large: bool) -> Sequence[Command]:
    return LargeStep(commands) if is_large else commands


def _ids(handle: QueueHandle, parts: Sequence[Part], is_large: bool) -> Steps[list[list[bytes]]]:
    """The ids of each part."""
    ids = [dict[bytes, None]() for _ in parts]
    ranges: list[tuple[int, Command]] = []
    for number, part in enumerate(parts):
        key = handle.dialect.state_key(part.state)
        if key.kind == "set":
            ids[number] = yield from _of_set(handle.keys[key.key], part.size, is_large)
        else:
            # From the end that jobs enter at: those that leave at the other one shift no places.
            command = "LRANGE" if key.kind == "list" else "ZREVRANGE"
            ranges += [(number, (command, handle.keys[key.key], *window)) for window in part.windows()]
    for start in range(0, len(ranges), _TOGETHER):
        some = ranges[start : start + _TOGETHER]
        replies = yield _step([command for _, command in some], is_large)
        for (number, _), reply in zip(some, replies, strict=True):
            ids[number] |= dict.fromkeys(reply)
    return [[*of_part] for of_part in ids]


def _of_set(key: str, size: int, is_large: bool) -> Steps[dict[bytes, None]]:
    """Some ids of a SET."""
    ids: dict[bytes, None] = {}
    cursor, is_over = 0, size == 0
    while not is_over:
        ((cursor, found),) = yield _step([("SSCAN", key, cursor, "COUNT", min(size, _MOST_IDS))], is_large)
        ids |= dict.fromkeys(found)
        is_over = int(cursor) == 0 or len(ids) >= size
    return dict.fromkeys([*ids][:size])


def _rows(handle: QueueHandle, ids: list[bytes], names: list[str], is_large: bool) -> Steps[dict[bytes, Sequence[Raw]]]:
    """The fields of the jobs that exist. `timestamp` is the first of the names."""
    base = handle.keys.base.encode()
    try:
        rows = dict(zip(ids, (yield _step([("HMGET", base + i, *names) for i in ids], is_large)), strict=True))
    except DialectError:
        # The key of a damaged job is not a hash.
        types = yield LargeStep([("TYPE", base + job_id) for job_id in ids])
        ids = [job_id for job_id, kind in zip(ids, types, strict=True) if kind == b"hash"]
        rows = dict(zip(ids, (yield LargeStep([("HMGET", base + i, *names) for i in ids])), strict=True))
    unclear = [job_id for job_id, row in rows.items() if row[0] is None]
    if unclear:
        # What is left of a removed job may have no timestamp.
        exist = yield _step([("EXISTS", base + job_id) for job_id in unclear], is_large)
        for job_id, exists in zip(unclear, exist, strict=True):
            if not exists:
                del rows[job_id]
    return rows
