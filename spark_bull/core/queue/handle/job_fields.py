"""Reads fields of jobs by their ids, many jobs per round trip.

This takes a third of the CPU of Redis that a script takes, and other clients' commands run between the commands of two
jobs. Each job is read in one step, but not together with its state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from spark_bull.core.dialects.fields import ALWAYS_THERE, FIELDS, Raw, text_of
from spark_bull.core.payloads.policy import MARK, Kind
from spark_bull.core.queue.handle.handle import CHUNK_SIZE, QueueHandle
from spark_bull.core.store.scripts import Command

#: Approximate maximum size of the jobs that one round trip reads.
MAX_BYTES: Final = 1 << 20
#: Number of jobs that the first round trip reads; jobs may be large.
FIRST: Final = 4
#: A following round trip reads this many times as many jobs, unless they are too large.
GROWTH: Final = 4
#: Jobs of a round trip whose sizes are measured.
SAMPLE: Final = 16
#: Up to this number of fields HMGET is cheaper. HGETALL scans a small hash once, HMGET once for each field.
MOST_PICKED: Final = 8
_MARK: Final = MARK.encode()

#: The values of each field, one per job; None for a job without the field.
Columns = dict[str, list[Raw]]


def raw_column(columns: Columns, name: str) -> list[Raw]:
    """The raw values of one of FIELDS, which must have been read."""
    first, *others = FIELDS[name].names
    column = columns[first]
    for other in others:
        if column.count(None) == len(column):
            column = columns[other]
        elif None in column:
            column = [b if a is None else a for a, b in zip(column, columns[other], strict=True)]
    return column


def opened_columns(handle: QueueHandle, ids: Sequence[Raw], columns: Columns) -> Columns:
    """Fields of jobs, with their payloads and results as they were before they were kept. Raises PayloadUnreadable."""
    if handle.payloads.is_plain:
        return columns
    kinds: tuple[Kind, ...] = ("data", "returnvalue")
    return columns | {kind: _opened_texts(handle, kind, ids, columns[kind]) for kind in kinds if kind in columns}


def _opened_texts(handle: QueueHandle, kind: Kind, ids: Sequence[Raw], raws: Sequence[Raw]) -> list[Raw]:
    return [
        handle.opened(kind, text_of(job_id) or "", raw.decode("utf-8", "replace")).encode()
        if raw is not None and raw.startswith(_MARK)
        else raw
        for job_id, raw in zip(ids, raws, strict=True)
    ]


class JobFields:
    """Reads the fields `names` of jobs; `timestamp` is always the first one. most: maximum number per round trip."""

    def __init__(self, handle: QueueHandle, names: Sequence[str], most: int = CHUNK_SIZE) -> None:
        self.names: Final = tuple(dict.fromkeys([ALWAYS_THERE, *names]))
        #: The number of jobs that the next round trip should read.
        self.window = min(FIRST, most)
        self._most = most
        self._connection = handle.connection
        self._base = handle.keys.base.encode()
        self._raw_names = [name.encode() for name in self.names]
        # A job that is read without its data may be much larger than the fields.
        self._whole = "data" in self.names and len(self.names) > MOST_PICKED

    def read(
        self, ids: Sequence[bytes], before: Sequence[Command] = (), after: Sequence[Command] = ()
    ) -> tuple[Columns, list[Any], list[Any]]:
        """The fields of these jobs, and the replies of commands that Redis runs before and after reading them.

        A job that does not exist, or whose key is not a hash, has no fields.
        """
        base, names = self._base, self._raw_names
        commands: list[Command] = [
            ("HGETALL", base + job_id) if self._whole else ("HMGET", base + job_id, *names) for job_id in ids
        ]
        replies = self._connection.pipeline([*before, *commands, *after], raw=True)
        start, stop = len(before), len(before) + len(ids)
        columns = self._of_hashes(replies[start:stop]) if self._whole else self._of_values(replies[start:stop])
        self._adapt(columns, len(ids))
        return columns, replies[:start], replies[stop:]

    def are_jobs(self, ids: Sequence[bytes], columns: Columns) -> list[bool]:
        """Which of the ids of a state have a hash: what is left of a removed job may have no timestamp."""
        times = columns[ALWAYS_THERE]
        unclear = [job_id for job_id, time in zip(ids, times, strict=True) if time is None]
        replies = self._connection.pipeline([("HLEN", self._base + job_id) for job_id in unclear], raw=True)
        found = {job_id for job_id, reply in zip(unclear, replies, strict=True) if reply}
        return [time is not None or job_id in found for job_id, time in zip(ids, times, strict=True)]

    def _of_values(self, rows: Sequence[list[Raw] | None]) -> Columns:
        none: list[Raw] = [None] * len(self.names)
        columns = zip(*[none if row is None else row for row in rows], strict=True) if rows else ([] for _ in none)
        return dict(zip(self.names, map(list, columns), strict=True))

    def _of_hashes(self, replies: Sequence[Any]) -> Columns:
        known = _by_name(replies)
        columns = ((name, known.get(raw_name)) for name, raw_name in zip(self.names, self._raw_names, strict=True))
        return {name: [None] * len(replies) if column is None else column for name, column in columns}

    def _adapt(self, columns: Columns, count: int) -> None:
        """Sets `window` by the sizes of some of the jobs that were read."""
        sampled = slice(None, None, max(1, count // SAMPLE))
        sizes = [len(value) for column in columns.values() for value in column[sampled] if value]
        size = sum(sizes) // max(1, len(range(count)[sampled]))
        self.window = max(1, min(MAX_BYTES // max(1, size), GROWTH * self.window, self._most))


def _by_name(replies: Sequence[Any]) -> dict[bytes, list[Raw]]:
    """The values of all fields that some of these hashes have."""
    lists = [reply for reply in replies if isinstance(reply, list)]
    if len(lists) == len(replies) and len(set(map(len, lists))) == 1:
        parts = [*zip(*lists, strict=True)]
        # Most jobs have the same fields in the same order; a dict per job takes three times as long.
        if all(names.count(names[0]) == len(names) for names in parts[::2]):
            return {names[0]: [*values] for names, values in zip(parts[::2], parts[1::2], strict=True)}
    hashes = [*map(_hash, replies)]
    return {name: [one.get(name) for one in hashes] for name in set[bytes]().union(*hashes)}


def _hash(reply: Any) -> Mapping[bytes, bytes]:
    """The fields of a hash: a map, in RESP2 a list of names and values."""
    if reply is None:
        return {}
    return reply if isinstance(reply, dict) else dict(zip(*[iter(reply)] * 2, strict=True))
