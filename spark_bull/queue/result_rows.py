"""The entries of a ledger of results with their jobs, as columns.

An entry is the finish of a job; `lua/lib/result_entry.lua` describes its format. What happened to the job later is not
shown: the time and, if the entry has it, the value are those of the entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgpack

from spark_bull.dialects.fields import Raw
from spark_bull.queue.job_rows import Row

_STATES: Final = {b"c": b"completed", b"f": b"failed"}
#: The field of a job's value, by its state.
_VALUE_FIELD: Final = {b"completed": "returnvalue", b"failed": "failedReason"}


class Entry(NamedTuple):
    """One finish of a job. `value`: its returnvalue or failedReason, if kept; `gone`: it was gone when it was found."""

    state: bytes
    job_id: bytes
    time: bytes
    value: Raw = None
    gone: bool = False


class ResultChunk(NamedTuple):
    """Some entries and their jobs. `columns`: raw values by name, a list, or one value that all rows have.

    Besides the hash fields there are `id`, `state`, and in `there` whether the job existed when it was read: there,
    gone (it was gone when it was found), or missing (it was removed later).
    """

    rows: int
    columns: dict[str, Any]


def parsed_entry(entry: bytes) -> Entry:
    state = _STATES[entry[:1].lower()]
    if entry[:1].islower():
        time, _, job_id = entry[1:].partition(b":")
        return Entry(state, job_id, time)
    job_id, time, value, gone = msgpack.unpackb(entry[1:], raw=True)
    return Entry(state, job_id, time, None if value is False else value, gone == 1)


def result_chunk(entries: Sequence[Entry], rows: Sequence[Row], fields: Sequence[str]) -> ResultChunk:
    """The entries with the rows of their jobs, which have values of `fields`: `timestamp`, `finishedOn` and others."""
    at = {name: place for place, name in enumerate(fields)}
    for entry, row in zip(entries, rows, strict=True):
        if entry.time and row[at["finishedOn"]] != entry.time:
            _restore(entry, row, at)
    there = [
        b"there" if row[at["timestamp"]] is not None else b"gone" if entry.gone else b"missing"
        for entry, row in zip(entries, rows, strict=True)
    ]
    names = [*fields, "id", "state", "there"]
    columns = [*zip(*rows, strict=True), [entry.job_id for entry in entries], [entry.state for entry in entries], there]
    return ResultChunk(len(entries), dict(zip(names, map(_collapsed, columns), strict=True)))


def _restore(entry: Entry, row: Row, at: dict[str, int]) -> None:
    """Gives the row of a job that was retried or removed since the values of the entry."""
    for state, name in _VALUE_FIELD.items():
        place = at.get(name)
        if place is not None and state != entry.state:
            row[place] = None
        elif place is not None and (row[at["finishedOn"]] is not None or row[place] is None):
            row[place] = entry.value
    row[at["finishedOn"]] = entry.time


def _collapsed(column: Sequence[Raw]) -> Any:
    """One value if all rows have the same, else a list."""
    return column[0] if column[1:] == column[:-1] else list(column)
