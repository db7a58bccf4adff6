"""Walks through the jobs of one state: some ids, then the fields of these jobs.

A job whose state changed between the two is left to the caller, who reads it together with its state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, Final, NamedTuple
from zlib import crc32

from spark_bull.dialects.base import StateKey
from spark_bull.queue.handle import QueueHandle
from spark_bull.queue.job_fields import Columns, JobFields
from spark_bull.store.connection import Command

#: Maximum number of ids that one command reads, for those of a slice or of a list.
MAX_IDS: Final = 5_000
#: Places that a job of a list may have been shifted by while its fields were read; beyond them it counts as moved.
SHIFT: Final = 250
#: Longer ids are not numbers of the counter.
MAX_DIGITS: Final = 20


@dataclass(frozen=True)
class Slice:
    """Slice `number` of `of`: jobs by their ids, in any state. Each job belongs to one slice."""

    number: int = 0
    of: int = 1

    def selects(self, ids: Iterable[bytes]) -> list[bool]:
        """Which of these ids belong to this slice. Ids of the counter are distributed evenly."""
        number, of = self.number, self.of
        return [(int(i) if i.isdigit() and len(i) < MAX_DIGITS else crc32(i)) % of == number for i in ids]


WHOLE: Final = Slice()


class Position(NamedTuple):
    """Number of ids already read, and the last of them; b"" if it is not known. For a SET, the cursor of SSCAN."""

    passed: int = 0
    last: bytes = b""


START: Final = Position()


class StateIds(NamedTuple):
    """Some ids of a state. `position`: behind them; `places`: in a list or ZSET, from the end that jobs enter at."""

    position: Position
    done: bool
    ids: list[bytes]
    places: list[int]


class Walked(NamedTuple):
    """Jobs of a state with their fields and, in a ZSET, scores; and the ids of jobs that are in it no longer."""

    ids: list[bytes]
    columns: Columns
    scores: list[Any]
    moved: list[bytes]


def ids_from(
    handle: QueueHandle, key: StateKey, position: Position = START, *, part: Slice = WHOLE, window: int = MAX_IDS
) -> StateIds:
    """The ids of a slice among the `window` ids from a position on.

    Lists and ZSETs are read from the end that jobs enter at: jobs that leave at the other end do not shift positions,
    and jobs that enter can only make a job appear twice.
    """
    call, state = handle.connection.call, handle.keys[key.key]
    if key.kind == "set":
        cursor, found = call("SSCAN", state, position.passed, "COUNT", window)
        ids = list(compress(found, part.selects(found)))
        return StateIds(Position(int(cursor)), int(cursor) == 0, ids, [])
    first, known = position.passed, 1 if position.last else 0
    command = "LRANGE" if key.kind == "list" else "ZREVRANGE"
    found = call(command, state, first - known, first + window - 1)
    if known and found[:1] != [position.last]:
        # Jobs have left or entered before this position: going back half a window repeats some jobs, but misses none.
        return ids_from(handle, key, Position(max(0, first - window // 2)), part=part, window=window)
    found = found[known:]
    behind = Position(first + len(found), found[-1] if found else b"")
    places = range(first, behind.passed)
    kept = part.selects(found)
    return StateIds(behind, len(found) < window, list(compress(found, kept)), list(compress(places, kept)))


def jobs_of(handle: QueueHandle, key: StateKey, ids: StateIds, fields: JobFields) -> Iterator[Walked]:
    """The jobs with these ids, as many at a time as `fields` allows."""
    start = 0
    while start < len(ids.ids):
        some = slice(start, start + fields.window)
        start += fields.window
        yield _walked(handle.keys[key.key], key.kind, ids._replace(ids=ids.ids[some], places=ids.places[some]), fields)


def _walked(state: str, kind: str, asked: StateIds, fields: JobFields) -> Walked:
    """Reads the jobs, and looks before and after that which of them are in their state."""
    columns, [before], [after] = fields.read(asked.ids, _check(state, kind, asked))
    stayed = _stayed(kind, asked.ids, before, after)
    exist = fields.are_jobs(asked.ids, columns)
    scores = before if kind == "zset" else []
    if all(stayed) and all(exist):
        return Walked(asked.ids, columns, scores, [])
    kept = [here and there for here, there in zip(stayed, exist, strict=True)]
    return Walked(
        list(compress(asked.ids, kept)),
        {name: list(compress(column, kept)) for name, column in columns.items()},
        list(compress(scores, kept)),
        [job_id for job_id, here in zip(asked.ids, stayed, strict=True) if not here],
    )


def _check(state: str, kind: str, asked: StateIds) -> Command:
    """A command that shows which of the jobs are in their state."""
    if kind == "list":
        return ("LRANGE", state, max(0, asked.places[0] - SHIFT), asked.places[-1] + SHIFT)
    return ("ZMSCORE" if kind == "zset" else "SMISMEMBER", state, *asked.ids)


def _stayed(kind: str, ids: Sequence[bytes], before: Sequence[Any], after: Sequence[Any]) -> list[bool]:
    """Whether each job is in its state, in a ZSET with the same score: it did not leave and come back."""
    if kind == "list":
        here = {*before} & {*after}
        return [job_id in here for job_id in ids]
    # 0 stands for a job that is not in a SET, None for one that is not in a ZSET.
    away = 0 if kind == "set" else None
    return [then == now and now != away for then, now in zip(before, after, strict=True)]
