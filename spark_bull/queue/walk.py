"""Walks through the jobs of one state: some ids, then the fields of these jobs.

A job whose state changed between the two is left to the caller, who reads it together with its state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, Final, NamedTuple

from spark_bull.dialects.base import StateKey
from spark_bull.queue.handle import QueueHandle
from spark_bull.queue.job_fields import Columns, JobFields
from spark_bull.store.connection import Command

#: Maximum number of ids that one script examines, for those of a slice or of a list.
MAX_IDS: Final = 5_000
#: Places that a job of a list may have been shifted by while its fields were read; beyond them it counts as moved.
SHIFT: Final = 250


@dataclass(frozen=True)
class Slice:
    """Slice `number` of `of`: jobs by their ids, in any state. Each job belongs to one slice."""

    number: int = 0
    of: int = 1


WHOLE: Final = Slice()


class StateIds(NamedTuple):
    """Some ids of a state, as lua/read/ids.lua returns them. `scores`: of a ZSET; `places`: in a list or a ZSET."""

    position: bytes
    done: bool
    ids: list[bytes]
    scores: list[bytes]
    places: list[int]


class Walked(NamedTuple):
    """Jobs of a state with their fields and, in a ZSET, scores; and the ids of jobs that are in it no longer."""

    ids: list[bytes]
    columns: Columns
    scores: list[bytes]
    moved: list[bytes]


def ids_from(
    handle: QueueHandle, key: StateKey, position: bytes = b"0", *, part: Slice = WHOLE, window: int = MAX_IDS
) -> StateIds:
    """The ids of a slice among the `window` ids from a position on."""
    next_position, done, ids, scores, places = handle.connection.script(
        "read/ids",
        {"state": handle.keys[key.key]},
        {"kind": key.kind, "position": position, "window": window, "slice": part.number, "slices": part.of},
    )
    return StateIds(next_position, done == 1, ids, scores, places)


def jobs_of(handle: QueueHandle, key: StateKey, ids: StateIds, fields: JobFields) -> Iterator[Walked]:
    """The jobs with these ids, as many at a time as `fields` allows."""
    start = 0
    while start < len(ids.ids):
        some = slice(start, start + fields.window)
        start += fields.window
        asked = ids._replace(ids=ids.ids[some], scores=ids.scores[some], places=ids.places[some])
        yield _walked(handle.keys[key.key], key.kind, asked, fields)


def _walked(state: str, kind: str, asked: StateIds, fields: JobFields) -> Walked:
    """Reads the jobs, then looks which of them are still in their state."""
    columns, [reply] = fields.read(asked.ids, _check(state, kind, asked))
    stayed = _stayed(kind, asked, reply)
    exist = fields.are_jobs(asked.ids, columns)
    moved = [job_id for job_id, here in zip(asked.ids, stayed, strict=True) if not here]
    if all(stayed) and all(exist):
        return Walked(asked.ids, columns, asked.scores, [])
    kept = [here and there for here, there in zip(stayed, exist, strict=True)]
    ids, scores = list(compress(asked.ids, kept)), list(compress(asked.scores, kept))
    return Walked(ids, {name: list(compress(column, kept)) for name, column in columns.items()}, scores, moved)


def _check(state: str, kind: str, asked: StateIds) -> Command:
    """A command that shows which of the jobs are in their state."""
    if kind == "list":
        return ("LRANGE", state, max(0, asked.places[0] - SHIFT), asked.places[-1] + SHIFT)
    return ("ZMSCORE" if kind == "zset" else "SMISMEMBER", state, *asked.ids)


def _stayed(kind: str, asked: StateIds, reply: Sequence[Any]) -> list[bool]:
    """Whether each job is in its state, in a ZSET with the same score: it did not leave and come back."""
    if kind == "list":
        here = set(reply)
        return [job_id in here for job_id in asked.ids]
    if kind == "set":
        return [member == 1 for member in reply]
    scores = zip(asked.scores, reply, strict=True)
    return [now is not None and float(now) == float(then) for then, now in scores]
