"""Reads the entries of a ledger of results with their jobs, as columns.

An entry is the finish of a job; `core/lua/lib/results.lua` describes its format. What happened to a job later is not
shown: the time and, if the entry has it, the value come from the entry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any, Final, NamedTuple

import msgpack

from spark_bull.core.dialects.fields import Raw
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.handle.job_fields import Columns, JobFields, opened_columns

_STATES: Final = {b"c": b"completed", b"f": b"failed"}
#: The field of a job's value, by its state.
_VALUE_FIELD: Final = {b"completed": "returnvalue", b"failed": "failedReason"}
#: State, job id, time, returnvalue or failedReason, if kept, and whether the job was gone when it was found.
Entry = tuple[bytes, bytes, bytes, Raw, bool]


class ResultChunk(NamedTuple):
    """Some entries and their jobs. `columns`: raw values by name, one per row.

    Besides the hash fields there are `id`, `state`, and in `there` whether the job existed when it was read. It was
    there, gone (when it was found), or missing (it was removed later).
    """

    rows: int
    columns: Columns

    def only(self, has: Callable[[bytes], bool]) -> ResultChunk:
        """The entries of jobs with such ids."""
        chosen = [job_id is not None and has(job_id) for job_id in self.columns["id"]]
        return ResultChunk(sum(chosen), {name: [*compress(column, chosen)] for name, column in self.columns.items()})


class ResultRows:
    """Reads the entries of a ledger with the fields `names` of their jobs, at most `most` entries per call.

    ledger, track: the keys of the ledger.
    """

    def __init__(self, handle: QueueHandle, ledger: str, track: str, names: Sequence[str], most: int) -> None:
        self._handle, self._connection = handle, handle.connection
        self._ledger, self._track = ledger, track
        self._fields = JobFields(handle, ["finishedOn", *names], most)
        #: Position of the first entry, as far as known.
        self._base = 0

    def read(self, start: int, stop: int) -> tuple[int, ResultChunk]:
        """The entries start..stop, the last one excluded, with fields of their jobs; fewer if these are large.

        Returns the position after them; no rows, and another position than `start`, when they have been removed.
        """
        position, chunk = self._stored(start, stop)
        if not chunk.rows:
            return position, chunk
        return position, ResultChunk(chunk.rows, opened_columns(self._handle, chunk.columns["id"], chunk.columns))

    def sizes(self, start: int, stop: int) -> tuple[int, list[int]]:
        """The sizes of the jobs that `read` returns, bytes: of their ids and fields as Redis has them."""
        position, chunk = self._stored(start, stop)
        values = [column for name, column in chunk.columns.items() if name not in ("state", "there")]
        return position, [sum(len(value) for value in row if value) for row in zip(*values, strict=True)]

    def _stored(self, start: int, stop: int) -> tuple[int, ResultChunk]:
        position, found = self._entries(start, min(stop, start + self._fields.window))
        if not found:
            return position, ResultChunk(0, {})
        entries = [*map(_parsed, found)]
        states, ids, times, _, gone = zip(*entries, strict=True)
        columns, _, _ = self._fields.read(ids)
        for place, (time, finished) in enumerate(zip(times, columns["finishedOn"], strict=True)):
            if finished != time and time:
                _restore(entries[place], columns, place)
        there: list[Any] = [
            b"there" if exists else b"gone" if was_gone else b"missing"
            for exists, was_gone in zip(self._fields.are_jobs(ids, columns), gone, strict=True)
        ]
        columns |= {"id": [*ids], "state": [*states], "there": there}
        return position + len(found), ResultChunk(len(found), columns)

    def _entries(self, start: int, stop: int) -> tuple[int, list[bytes]]:
        """The position of the first entry, and the entries."""
        while True:
            first = max(0, start - self._base)
            base_before, entries, base_after = self._connection.pipeline(
                [
                    ("HGET", self._track, "base"),
                    ("LRANGE", self._ledger, first, max(first, stop - self._base - 1)),
                    ("HGET", self._track, "base"),
                ],
                raw=True,
            )
            base = start if base_after is None else int(base_after)
            if base_before == base_after and base == self._base:
                return (start, entries) if start >= base else (base, [])
            # The positions of the list have moved, or were not known.
            self._base = base


def _parsed(entry: bytes) -> Entry:
    state = _STATES.get(entry[:1])
    if state is not None:
        head, _, job_id = entry.partition(b":")
        return state, job_id, head[1:], None, False
    job_id, time, value, gone = msgpack.unpackb(entry[1:], raw=True)
    return _STATES[entry[:1].lower()], job_id, time, None if value is False else value, gone == 1


def _restore(entry: Entry, columns: Columns, place: int) -> None:
    """Gives the values of the entry to a job that was retried or removed since."""
    state, _, time, value, _ = entry
    finished = columns["finishedOn"]
    for of_state, name in _VALUE_FIELD.items():
        values = columns.get(name)
        if values is not None and of_state != state:
            values[place] = None
        elif values is not None and (finished[place] is not None or values[place] is None):
            values[place] = value
    finished[place] = time
