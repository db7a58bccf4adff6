"""Reads the jobs of states in portions that continue at a place, for readers that keep no connection.

No job that stays in its state is skipped, even if others come or go between two portions; some may be read twice. The
place in a ZSET is the score and id of the last job. In a LIST it is a position and the ids read last, one of which is
looked for near that position. In a SET it is the cursor of a scan. A portion takes a bounded number of scripts, and
each of them examines a bounded number of ids. So a portion may have fewer jobs than wanted, even none, and not be the
last one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import msgpack

from spark_bull.core.clock import DELAYED_SCALE
from spark_bull.core.dialects.fields import FIELDS
from spark_bull.core.model.read_jobs import Job
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.handle.job_fields import MAX_BYTES
from spark_bull.core.queue.handle.walk import MAX_IDS
from spark_bull.core.queue.jobs.read import (
    STATE_ORDER,
    Chunk,
    by_field,
    hash_fields,
    read_ids,
    run_at_of,
    unpacked,
)

#: Scripts that read jobs, and jobs examined, per portion.
MAX_SCRIPTS: Final = 8
MAX_EXAMINED: Final = 2_000
_PER_SCRIPT: Final = 500
#: Scripts that look for the place in a list, per portion; each examines MAX_IDS ids.
MAX_SEARCHES: Final = 20
#: SETs of at most this number of ids are read whole, and sorted.
MAX_SORTED: Final = 1_000
#: Distances of the ids of a place from the last one read.
_ANCHORS: Final = (0, 1, 2, 4, 8, 16, 32, 64)
_FIELDS: Final = hash_fields(FIELDS)


@dataclass(frozen=True)
class Place:
    """Where a portion continues: the state, and the place in its key.

    `score`, `member`: of a ZSET. `first`, `length`, `anchors`: of a LIST: position of the next id, the length at that
    time, and ids before it, the last one first. `cursor`, `left_over`: of a SET; `member` if its ids are sorted.
    """

    state: str
    score: str = ""
    member: bytes = b""
    first: int = 0
    length: int = 0
    anchors: tuple[bytes, ...] = ()
    cursor: int | None = None
    left_over: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class JobFilter:
    """Which jobs a reader wants; a condition that is None holds for all.

    name: name of the job. text: in its id, name, payload, return value or reason of failure, in any case. reason: in
    its reason of failure, in any case. since, until: when it has ended, is due, or else was added, ms since 1970, both
    included.
    """

    name: str | None = None
    text: str | None = None
    since: int | None = None
    until: int | None = None
    reason: str | None = None

    @property
    def is_empty(self) -> bool:
        return self == JobFilter()

    def accepts(self, job: Job) -> bool:
        if self.name is not None and job.name != self.name:
            return False
        if self.text is not None and not self._has_text(job, self.text.casefold()):
            return False
        if self.reason is not None and self.reason.casefold() not in (job.failed_reason or "").casefold():
            return False
        time = time_of(job)
        if time is None:
            return self.since is None and self.until is None
        return (self.since is None or time >= self.since) and (self.until is None or time <= self.until)

    @staticmethod
    def _has_text(job: Job, text: str) -> bool:
        searched = (job.id, job.name, job.data_text, job.returnvalue_text, job.failed_reason)
        return any(text in value.casefold() for value in searched if value)


def time_of(job: Job) -> int | None:
    """When a job has ended, is due, or else was added, ms since 1970."""
    if job.state in ("completed", "failed") and job.finished_on is not None:
        return job.finished_on
    return job.run_at if job.state == "delayed" and job.run_at is not None else job.timestamp


class Portion(NamedTuple):
    """Jobs, and where the next portion begins; None: there is none."""

    jobs: list[Job]
    next: Place | None


def read_portion(
    handle: QueueHandle,
    states: Sequence[str],
    place: Place | None,
    limit: int,
    *,
    wanted: JobFilter = JobFilter(),
    descending: bool = False,
) -> Portion:
    """Reads at most `limit` jobs of these states (none given: of all), in the order in which a job passes the states.

    Within a state, the jobs that come next, or have ended first, come first; descending: last. The ended jobs of a
    queue without times have no order if they are more than MAX_SORTED. Raises DialectError for an unknown state.
    """
    for state in states:
        handle.dialect.state_key(state)
    order = [s for s in STATE_ORDER if s in handle.dialect.states and (not states or s in states)]
    if place is not None:
        order = order[order.index(place.state) :] if place.state in order else []
    budget = _Budget(handle, limit, wanted, descending)
    for number, state in enumerate(order):
        start = place if place is not None and number == 0 else Place(state)
        rest = budget.read(start)
        if rest is not None:
            return Portion(budget.jobs, rest)
        if budget.is_spent and number + 1 < len(order):
            return Portion(budget.jobs, Place(order[number + 1]))
    return Portion(budget.jobs, None)


class _Step(NamedTuple):
    """Some ids of a state, and the jobs among them. `places`: where to continue after each id."""

    ids: Sequence[bytes]
    jobs: Mapping[bytes, Job]
    places: Sequence[Place]
    is_last: bool


@dataclass
class _Budget:
    """Reads one portion, state by state."""

    handle: QueueHandle
    limit: int
    wanted: JobFilter
    descending: bool
    jobs: list[Job] = field(default_factory=list)
    scripts: int = 0
    examined: int = 0

    @property
    def is_spent(self) -> bool:
        return len(self.jobs) >= self.limit or self.scripts >= MAX_SCRIPTS or self.examined >= MAX_EXAMINED

    def read(self, place: Place) -> Place | None:
        """Reads on in a state; returns where to continue in it, None at its end."""
        while True:
            if self.is_spent:
                return place
            step = self._step(place)
            self.scripts += 1
            self.examined += len(step.ids)
            for job_id, after in zip(step.ids, step.places, strict=True):
                place = after
                job = step.jobs.get(job_id)
                if job is not None and self._is_beyond(job):
                    return None
                if job is not None and self.wanted.accepts(job):
                    self.jobs.append(job)
                    if len(self.jobs) == self.limit:
                        return None if step.is_last and job_id is step.ids[-1] else place
            if step.is_last:
                return None

    def _step(self, place: Place) -> _Step:
        most = min(_PER_SCRIPT, MAX_EXAMINED - self.examined)
        if self.wanted.is_empty:
            most = min(most, self.limit - len(self.jobs))
        kind = self.handle.dialect.state_key(place.state).kind
        if kind == "set":
            return _set_step(self.handle, place, most, self.descending)
        if kind == "zset":
            return self._zset_step(place, most)
        return _list_step(self.handle, place, most, self.descending)

    def _zset_step(self, place: Place, most: int) -> _Step:
        bound = self.wanted.until if self.descending else self.wanted.since
        scale = _scale(self.handle, place.state)
        if not place.score and bound is not None and scale:
            place = replace(place, score=str((bound + 1 if self.descending else bound) * scale))
        reply = _after(self.handle, place, most, self.descending)
        ids, scores = reply["members"], reply["scores"]
        places = [Place(place.state, score.decode(), job_id) for job_id, score in zip(ids, scores, strict=True)]
        return _Step(ids, _jobs_in_reply(self.handle, place.state, reply), places, _is_last(reply))

    def _is_beyond(self, job: Job) -> bool:
        """Whether all further jobs of the state are outside the range of times."""
        time = time_of(job)
        if not _scale(self.handle, job.state or "") or time is None:
            return False
        if self.descending:
            return self.wanted.since is not None and time < self.wanted.since
        return self.wanted.until is not None and time > self.wanted.until


def _scale(handle: QueueHandle, state: str) -> int:
    """The scores of a state are times in ms multiplied by this; 0: they are something else."""
    if state == "delayed":
        return DELAYED_SCALE
    return 1 if state in ("completed", "failed") and handle.dialect.has("finish-times") else 0


def _list_step(handle: QueueHandle, place: Place, most: int, descending: bool) -> _Step:
    """Reads behind the ids of a place, which may have moved; if all of them are gone, from the beginning."""
    reply = _after(handle, place, most, descending)
    if not reply["found"]:
        moved_by = reply["length"] - place.length
        for first in _nearby(place.first + moved_by, reply["length"]):
            reply = _after(handle, replace(place, first=first), most, descending)
            if reply["found"]:
                break
        else:
            reply = _after(handle, Place(place.state), most, descending)
    ids, places = reply["members"], []
    read = [*ids[::-1], *place.anchors]
    for number in range(1, len(ids) + 1):
        before = read[len(ids) - number :]
        anchors = tuple(before[distance] for distance in _ANCHORS if distance < len(before))
        places.append(Place(place.state, first=reply["first"] + number, length=reply["length"], anchors=anchors))
    return _Step(ids, _jobs_in_reply(handle, place.state, reply), places, _is_last(reply))


def _nearby(middle: int, length: int) -> Iterator[int]:
    """Positions in a list around which to look, further and further away from one."""
    for number in range(MAX_SEARCHES):
        position = middle + (number + 1) // 2 * MAX_IDS * (1 if number % 2 else -1)
        if -MAX_IDS // 2 < position < length + MAX_IDS // 2:
            yield max(0, position)


def _set_step(handle: QueueHandle, place: Place, most: int, descending: bool) -> _Step:
    """Reads on in a SET: in the order of the ids if they are few, else as a scan finds them."""
    key, call = handle.keys[handle.dialect.state_key(place.state).key], handle.connection.call
    if place.cursor is None and call("SCARD", key) <= MAX_SORTED:
        ids = sorted(call("SMEMBERS", key), key=_numbers_first, reverse=descending)
        if place.member:
            last = _numbers_first(place.member)
            ids = [i for i in ids if (_numbers_first(i) < last if descending else _numbers_first(i) > last)]
        places = [Place(place.state, member=job_id) for job_id in ids[:most]]
        return _Step(ids[:most], _jobs_of(handle, place.state, ids[:most]), places, len(ids) <= most)
    cursor, ids = place.cursor or 0, list(place.left_over)
    if not ids:
        cursor, found = call("SSCAN", key, cursor, "COUNT", most)
        cursor, ids = int(cursor), list(found)
    read, rest = ids[:most], ids[most:]
    places = [Place(place.state, cursor=cursor, left_over=tuple(ids[number:])) for number in range(1, len(read) + 1)]
    if not read and cursor:
        return _set_step(handle, Place(place.state, cursor=cursor), most, descending)
    return _Step(read, _jobs_of(handle, place.state, read), places, not cursor and not rest)


def _numbers_first(job_id: bytes) -> tuple[int, int, bytes]:
    """Sorts ids: numbers by their value, then other ids."""
    return (0, int(job_id), job_id) if job_id.isdigit() else (1, 0, job_id)


def _after(handle: QueueHandle, place: Place, most: int, descending: bool) -> dict[str, Any]:
    """Runs core/lua/read/after.lua, which explains the arguments."""
    key = handle.dialect.state_key(place.state)
    answer = handle.connection.script(
        "read/after",
        {"state": handle.keys[key.key]},
        {
            "base": handle.keys.base,
            "kind": key.kind,
            "entering": int(descending),
            "score": place.score,
            "member": place.member,
            "first": place.first,
            "anchors": msgpack.packb(place.anchors, use_bin_type=False),
            "window": MAX_IDS,
            "most": most,
            "most_bytes": MAX_BYTES,
            "fields": _FIELDS,
        },
    )
    return unpacked(answer)


def _is_last(reply: Mapping[str, Any]) -> bool:
    return bool(reply["first"] + len(reply["members"]) >= reply["length"])


def _jobs_in_reply(handle: QueueHandle, state: str, reply: Mapping[str, Any]) -> dict[bytes, Job]:
    ids = reply["ids"]
    scores = dict(zip(reply["members"], reply["scores"], strict=False))
    states: list[str | None] = [state] * len(ids)
    run_at = run_at_of(states, [scores.get(job_id) for job_id in ids])
    chunk = Chunk(ids, states, run_at, by_field(_FIELDS, reply["values"])).opened(handle)
    jobs = chunk.jobs(handle.keys.queue)
    return dict(zip(ids, jobs, strict=True))


def _jobs_of(handle: QueueHandle, state: str, ids: Sequence[bytes]) -> dict[bytes, Job]:
    chunks = read_ids(handle, [job_id.decode("utf-8", "replace") for job_id in ids], [state])
    return {
        job_id: job for chunk in chunks for job_id, job in zip(chunk.ids, chunk.jobs(handle.keys.queue), strict=True)
    }
