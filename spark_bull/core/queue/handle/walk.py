"""Walks through the jobs of one state: some ids, then the fields of these jobs.

A job whose state changed between the two is left to the caller, who reads it together with its state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Any, Final, NamedTuple
from zlib import crc32

from spark_bull.core.dialects.base import StateKey
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.handle.job_fields import Columns, JobFields
from spark_bull.core.store.scripts import Command

#: Maximum number of ids that one command reads, of a slice or of a list.
MAX_IDS: Final = 5_000
#: Places that a job of a list may have been shifted by while its fields were read; beyond them it counts as moved.
SHIFT: Final = 250
#: The same for the first look, near the first and the last job only; one at all places between them costs more.
NEAR: Final = 100


class Slice(NamedTuple):
    """Slice `number` of `of`: jobs by their queue and ids, in any state. Each job belongs to one slice.

    ignored: number of last characters that do not count: ids that differ only in them are in one slice. Redis reads
    jobs that were added one after the other in less time, as they are close to each other in its memory.
    queue: without it, short ids and their groups would be in the same slice in all queues.
    """

    number: int = 0
    of: int = 1
    ignored: int = 0
    queue: str = ""

    def selects(self, ids: Sequence[bytes]) -> list[bool]:
        """Which of these ids belong to this slice."""
        if self.of == 1:
            return [True] * len(ids)
        number, of, stop, seed = self.number, self.of, -self.ignored or None, crc32(self.queue.encode())
        return [crc32(job_id[:stop], seed) % of == number for job_id in ids]


WHOLE: Final = Slice()


class Position(NamedTuple):
    """Number of ids already read, and the last ones of them, if they are known. For a SET, the cursor of SSCAN."""

    passed: int = 0
    last: Sequence[bytes] = ()


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

    Lists and ZSETs are read from the end that jobs enter at. Jobs that leave at the other end do not shift positions,
    and jobs that enter can only make a job appear twice.
    """
    call, state = handle.connection.call, handle.keys[key.key]
    if key.kind == "set":
        cursor, found = call("SSCAN", state, position.passed, "COUNT", window)
        ids = list(compress(found, part.selects(found)))
        return StateIds(Position(int(cursor)), int(cursor) == 0, ids, [])
    command, known = "LRANGE" if key.kind == "list" else "ZREVRANGE", 1 if position.last else 0
    first = position.passed - known
    found = call(command, state, first, first + known + window - 1)
    done = len(found) < known + window
    new = _first_new(position.last, found)
    if new is None:
        # Going back half a window repeats some jobs, and misses none unless more than that have left.
        back = Position(max(0, position.passed - window // 2))
        return ids_from(handle, key, back, part=part, window=window)
    behind = Position(first + len(found), found or position.last)
    kept, places = part.selects(found[new:]), range(first + new, behind.passed)
    return StateIds(behind, done, list(compress(found[new:], kept)), list(compress(places, kept)))


def _first_new(last: Sequence[bytes], found: Sequence[bytes]) -> int | None:
    """The index of the first id that was not read before. None if jobs before it have left or moved.

    Jobs that entered have shifted as many of the last ids into `found`, all of them in their order. A job that has
    moved to another place follows other ids there, and what lies between the two places was not read.
    """
    if not last:
        return 0
    if last[-1] not in found:
        return None
    new = found.index(last[-1]) + 1
    return new if [*found[:new]] == [*last[-new:]] else None


def jobs_of(handle: QueueHandle, key: StateKey, ids: StateIds, fields: JobFields) -> Iterator[Walked]:
    """The jobs with these ids, as many at a time as `fields` allows."""
    start = shift = 0
    while start < len(ids.ids):
        some = slice(start, start + fields.window)
        start += fields.window
        asked = _shifted(ids._replace(ids=ids.ids[some], places=ids.places[some]), shift)
        walked, further = _walked(handle, key, asked, fields)
        shift += further
        yield walked


def _walked(handle: QueueHandle, key: StateKey, asked: StateIds, fields: JobFields) -> tuple[Walked, int]:
    """Reads the jobs, and looks before and after that which of them are in their state. In a list, also their shift."""
    state, kind, shift = handle.keys[key.key], key.kind, 0
    if kind == "list":
        # Costs less than a look at all places between the first and the last job: most of them are of other slices.
        first, last = _near(state, asked.places[0]), _near(state, asked.places[-1])
        columns, before, after = fields.read(asked.ids, [last], [first, last])
        shift = _shift(handle, state, asked, after[0])
        if _all_stayed(asked.ids, *before, *after):
            return _kept(asked.ids, columns, [], [True] * len(asked.ids), fields), shift
        asked = _shifted(asked, shift)
    check: list[Command] = [("ZMSCORE" if kind == "zset" else "SMISMEMBER", state, *asked.ids)]
    if kind == "list":
        check = [("LRANGE", state, max(0, asked.places[0] - SHIFT), asked.places[-1] + SHIFT)]
    columns, [then], [now] = fields.read(asked.ids, check, check)
    stayed = _stayed(kind, asked.ids, then, now)
    return _kept(asked.ids, columns, then if kind == "zset" else [], stayed, fields), shift


def _kept(ids: list[bytes], columns: Columns, scores: list[Any], stayed: Sequence[bool], fields: JobFields) -> Walked:
    """The jobs that are in their state, without ids that have no job."""
    exist = fields.are_jobs(ids, columns)
    if all(stayed) and all(exist):
        return Walked(ids, columns, scores, [])
    kept = [here and there for here, there in zip(stayed, exist, strict=True)]
    return Walked(
        list(compress(ids, kept)),
        {name: list(compress(column, kept)) for name, column in columns.items()},
        list(compress(scores, kept)),
        [job_id for job_id, here in zip(ids, stayed, strict=True) if not here],
    )


def _near(state: str, place: int) -> Command:
    """Reads the ids from a place of a list up to where jobs that entered may have shifted its job to."""
    return ("LRANGE", state, place, place + NEAR)


def _shift(handle: QueueHandle, state: str, asked: StateIds, near: Sequence[bytes]) -> int:
    """The number of places that a list's jobs were shifted by. near: the ids from the place of the first job on."""
    if asked.ids[0] in near:
        return near.index(asked.ids[0])
    start = max(0, asked.places[0] - SHIFT)
    found = handle.connection.call("LRANGE", state, start, asked.places[-1] + MAX_IDS)
    ends = ((asked.ids[0], asked.places[0]), (asked.ids[-1], asked.places[-1]))
    # One of the two may have moved, mostly further away.
    return min((start + found.index(job_id) - place for job_id, place in ends if job_id in found), key=abs, default=0)


def _shifted(asked: StateIds, shift: int) -> StateIds:
    return asked._replace(places=[max(0, place + shift) for place in asked.places]) if shift else asked


def _all_stayed(
    ids: Sequence[bytes], last_before: Sequence[bytes], first: Sequence[bytes], last: Sequence[bytes]
) -> bool:
    """Whether jobs of a list are all in it: the first and the last one are, as far from each other as before.

    Only one that is removed leaves a list from between two others. Limit: if a job leaves from between the two and
    another one enters there, as with a priority, none seems to have left. The one that has left is then read with its
    old state.
    """
    here = ids[0] in first and ids[-1] in last_before and ids[-1] in last
    return here and first.index(ids[0]) == last.index(ids[-1])


def _stayed(kind: str, ids: Sequence[bytes], before: Sequence[Any], after: Sequence[Any]) -> list[bool]:
    """Whether each job is in its state, in a ZSET with the same score: it did not leave and come back."""
    if kind == "list":
        here = {*before} & {*after}
        return [job_id in here for job_id in ids]
    # 0 stands for a job that is not in a SET, None for one that is not in a ZSET.
    away = 0 if kind == "set" else None
    return [then == now and now != away for then, now in zip(before, after, strict=True)]
