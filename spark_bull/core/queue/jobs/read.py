"""Reads jobs chunk by chunk, without changing anything.

The state and the fields of a job are consistent: a job that changes its state while its fields are read is read again,
by a script. A whole read is not a snapshot: the queue changes between two chunks. States are read in the order in which
a job passes them, and an id is not read twice: a job that only moves forward during the read appears once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgpack

from spark_bull.core.clock import DELAYED_SCALE
from spark_bull.core.dialects.base import StateKey
from spark_bull.core.dialects.fields import ALWAYS_THERE, FIELDS, Raw, value_of
from spark_bull.core.errors import encodable, expected
from spark_bull.core.late import late
from spark_bull.core.model.javascript import LARGEST, whole
from spark_bull.core.queue.handle.handle import CHUNK_SIZE, QueueHandle
from spark_bull.core.queue.handle.job_fields import MAX_BYTES, Columns, JobFields, opened_columns, raw_column
from spark_bull.core.queue.handle.walk import MAX_IDS, START, WHOLE, Position, Slice, Walked, ids_from, jobs_of
from spark_bull.core.store.round_trips import RoundTrips, run

if TYPE_CHECKING:
    from spark_bull.core.model import read_jobs as job_types
    from spark_bull.core.model.read_jobs import Job
else:
    (job_types,) = late("read_jobs", of="spark_bull.core.model")

#: Chunks whose ids one command reads, unless they are more than MAX_IDS.
CHUNKS_PER_CALL: Final = 4
#: Ids that a read keeps, so as not to return a job twice.
REMEMBERED: Final = 200_000

#: The order in which a job passes the states.
STATE_ORDER: Final = ("waiting-children", "delayed", "paused", "prioritized", "wait", "active", "failed", "completed")

T = TypeVar("T")


class Chunk(NamedTuple):
    """Some jobs, as columns of equal length. `run_at`: when delayed jobs are due, ms; `values`: by hash field."""

    ids: list[bytes]
    states: list[str | None]
    run_at: list[int | None]
    values: Columns

    def column(self, name: str) -> list[Raw]:
        """The raw values of one of FIELDS, which must have been read."""
        return raw_column(self.values, name)

    def take(self, positions: Sequence[int]) -> Chunk:
        if len(positions) == len(self.ids):
            return self

        def chosen(column: list[T]) -> list[T]:
            return [column[i] for i in positions]

        values = {name: chosen(column) for name, column in self.values.items()}
        return Chunk(chosen(self.ids), chosen(self.states), chosen(self.run_at), values)

    def updated(self, other: Chunk) -> Chunk:
        """These jobs, with the jobs of `other` in place of the ones with the same ids."""
        places = {job_id: place for place, job_id in enumerate(other.ids)}
        at = [places.get(job_id) for job_id in self.ids]

        def merged(own: list[T], others: list[T]) -> list[T]:
            return [value if place is None else others[place] for value, place in zip(own, at, strict=True)]

        values = {name: merged(own, other.values[name]) for name, own in self.values.items()}
        return Chunk(self.ids, merged(self.states, other.states), merged(self.run_at, other.run_at), values)

    def opened(self, handle: QueueHandle) -> Chunk:
        """These jobs, with their payloads and results as they were before they were kept. Raises PayloadUnreadable."""
        return Chunk(self.ids, self.states, self.run_at, opened_columns(handle, self.ids, self.values))

    def jobs(self, queue: str) -> Iterator[Job]:
        """The jobs as objects; all FIELDS must have been read."""
        columns = {f.attribute: [value_of(f, raw) for raw in self.column(name)] for name, f in FIELDS.items()}
        for i, job_id in enumerate(self.ids):
            # A missing `data_text` or `opts_text` has the default of Job.
            given = {n: v[i] for n, v in columns.items() if v[i] is not None}
            yield job_types.Job(
                queue, job_id.decode("utf-8", "replace"), self.states[i], run_at=self.run_at[i], **given
            )


def counts(handle: QueueHandle) -> dict[str, int]:
    """The number of jobs in each state of the dialect."""
    return run(handle.connection, counting(handle))


def counting(handle: QueueHandle) -> RoundTrips[dict[str, int]]:
    """The steps of `counts`."""
    commands = count_commands(handle)
    replies = yield [*commands.values()]
    return {state: int(reply) for state, reply in zip(commands, replies, strict=True)}


def count_commands(handle: QueueHandle) -> dict[str, tuple[str, str]]:
    """The command that counts the jobs of each state."""
    return {state: (_COUNT[key.kind], handle.keys[key.key]) for state, key in handle.dialect.states.items()}


_COUNT: Final = {"list": "LLEN", "zset": "ZCARD", "set": "SCARD"}


def read_jobs(
    handle: QueueHandle,
    states: Sequence[str] = (),
    columns: Iterable[str] = FIELDS,
    part: Slice = WHOLE,
    chunk_size: int = CHUNK_SIZE,
) -> Iterator[Chunk]:
    """The jobs of a slice that are in one of `states` (none given: in any), with some of FIELDS.

    A state that the dialect lacks has no jobs.
    """
    fields = hash_fields(columns)
    memory = _Memory()
    for state in STATE_ORDER:
        if state in handle.dialect.states and (not states or state in states):
            for chunk in _walk(handle, state, fields, part, chunk_size, states):
                fresh = chunk.take(memory.fresh(chunk.ids))
                if fresh.ids:
                    yield fresh


def read_ids(
    handle: QueueHandle,
    ids: Iterable[str],
    states: Sequence[str] = (),
    columns: Iterable[str] = FIELDS,
    chunk_size: int = CHUNK_SIZE,
) -> Iterator[Chunk]:
    """Jobs by their ids, in this order, if they exist and (when given) are in one of `states`."""
    fields = hash_fields(columns)
    remaining = iter(dict.fromkeys(ids))
    while batch := [encodable("job_id", job_id).encode() for job_id in islice(remaining, chunk_size)]:
        yield from _by_ids(handle, batch, fields, states)


def read_job(handle: QueueHandle, job_id: str) -> Job | None:
    """The job with this id and its state, or None when there is none."""
    return next((job for chunk in read_ids(handle, [job_id]) for job in chunk.jobs(handle.keys.queue)), None)


def page(
    handle: QueueHandle,
    state: str,
    start: int = 0,
    stop: int = -1,
    *,
    name: str | None = None,
    descending: bool = False,
) -> list[Job]:
    """Jobs start..stop of a state, both included, negative ones from the end, as Redis counts.

    name: only jobs of this name. In the order in which jobs come next, or have finished; descending: the other way
    round; the finished jobs of bull-1 have no order. If neither counts from the end, following jobs replace ids without
    a job, as in BullMQ. Raises DialectError for a state that the dialect lacks.
    """
    key = handle.dialect.state_key(state)
    if name is not None:
        ids = _ids_of_name(handle, state, encodable("name", name))[:: 1 if descending else -1]
        first, last = _places(start, stop, len(ids))
        chunks = read_ids(handle, ids[first : last + 1], [state])
        return [job for chunk in chunks for job in chunk.jobs(handle.keys.queue)]
    total = counts(handle)[state]
    first, last = _places(start, stop, total)
    if first > last:
        return []
    if descending:
        return page(handle, state, total - 1 - last, total - 1 - first)[::-1]
    if key.kind == "set":
        walk = _walk(handle, state, hash_fields(FIELDS), WHOLE, min(CHUNK_SIZE, last - first + 1), [state])
        return list(islice((job for chunk in walk for job in chunk.jobs(handle.keys.queue)), first, last + 1))
    wanted = last - first + 1
    jobs: list[Job] = []
    while len(jobs) < wanted and first < total:
        last = min(first + wanted - len(jobs), total) - 1
        jobs += _window(handle, state, total, first, last)
        first = last + 1 if start >= 0 and stop >= 0 else total
    return jobs


def _places(start: int, stop: int, total: int) -> tuple[int, int]:
    """The first and the last place of a page, from 0; the last one is before the first one if there is none."""
    first = max(0, start + total) if start < 0 else start
    return first, min(stop + total if stop < 0 else stop, total - 1)


def _ids_of_name(handle: QueueHandle, state: str, name: str) -> list[str]:
    """The ids of the jobs of a state with a name, in the order in which they have entered it, the last one first."""
    found: dict[bytes, None] = {}
    for chunk in _walk(handle, state, hash_fields(["name"]), WHOLE, CHUNK_SIZE, [state]):
        for job_id, raw in zip(chunk.ids, chunk.column("name"), strict=True):
            if raw == name.encode():
                found[job_id] = None
    return [job_id.decode("utf-8", "replace") for job_id in found]


def _window(handle: QueueHandle, state: str, total: int, first: int, last: int) -> list[Job]:
    """The jobs at these places of a list or ZSET of `total` ids, which is read from the end that jobs enter at."""
    jobs: list[Job] = []
    key, fields = handle.dialect.state_key(state), JobFields(handle, hash_fields(FIELDS))
    behind, end, passed = total - 1 - last, total - first, True
    while passed and behind < end:
        found = ids_from(handle, key, Position(behind), window=min(CHUNK_SIZE, end - behind))
        for walked in jobs_of(handle, key, found, fields):
            jobs += _chunk(handle, state, walked).jobs(handle.keys.queue)
        passed, behind = found.position.passed > behind, found.position.passed
    return jobs[::-1]


def hash_fields(columns: Iterable[str]) -> list[str]:
    return list(dict.fromkeys([ALWAYS_THERE, *(name for column in columns for name in FIELDS[column].names)]))


def by_field(fields: list[str], values: list[Any]) -> dict[str, list[Raw]]:
    """Values, which are ordered by job, as columns; Lua returns false for a missing one."""
    columns = {}
    for number, name in enumerate(fields):
        column = values[number :: len(fields)]
        columns[name] = [None if value is False else value for value in column] if False in column else column
    return columns


def _walk(
    handle: QueueHandle, state: str, names: list[str], part: Slice, chunk_size: int, states: Sequence[str]
) -> Iterator[Chunk]:
    """Chunk after chunk of one state, and jobs that left it meanwhile for one of `states` (none given: for any)."""
    key, fields = handle.dialect.state_key(state), JobFields(handle, names, chunk_size)
    window, position, done = min(MAX_IDS, CHUNKS_PER_CALL * chunk_size * part.of), START, False
    while not done:
        found = ids_from(handle, key, position, part=part, window=window)
        for walked in jobs_of(handle, key, found, fields):
            if walked.ids:
                yield _chunk(handle, state, walked)
            if walked.moved:
                yield from _by_ids(handle, walked.moved, names, states or list(handle.dialect.states))
        position, done = found.position, found.done


def _chunk(handle: QueueHandle, state: str, walked: Walked) -> Chunk:
    states: list[str | None] = [state] * len(walked.ids)
    run_at = run_at_of(states, walked.scores or [False] * len(walked.ids))
    return Chunk(walked.ids, states, run_at, walked.columns).opened(handle)


def _by_ids(handle: QueueHandle, ids: list[bytes], fields: list[str], states: Sequence[str]) -> Iterator[Chunk]:
    """Jobs by their ids, if they are in one of `states`; if none is given, also jobs in no state."""
    while ids:
        done, chunk = _read_ids(handle, ids, fields)
        ids = ids[done:]
        wanted = chunk.take([i for i, state in enumerate(chunk.states) if not states or state in states])
        if wanted.ids:
            yield wanted.opened(handle)


def unpacked(reply: bytes) -> dict[str, Any]:
    """The parts of a packed reply by name; texts in them stay bytes."""
    return {name.decode(): part for name, part in msgpack.unpackb(reply, raw=True).items()}


def run_at_of(states: list[str | None], scores: list[Any]) -> list[int | None]:
    """ms since 1970 for delayed jobs."""
    if "delayed" not in states:
        return [None] * len(states)
    return [
        whole(float(score)) // DELAYED_SCALE if score and state == "delayed" else None
        for state, score in zip(states, scores, strict=True)
    ]


def _read_ids(handle: QueueHandle, ids: list[bytes], fields: list[str], *, again: bool = True) -> tuple[int, Chunk]:
    """The number of ids processed, and the jobs that exist."""
    sorted_states = {s: key for s, key in handle.dialect.states.items() if key.kind != "list"}
    answer = handle.connection.script(
        "read/jobs",
        {"states": [handle.keys[key.key] for key in sorted_states.values()]},
        {
            "base": handle.keys.base,
            "kinds": msgpack.packb([key.kind for key in sorted_states.values()], use_bin_type=False),
            "most_bytes": MAX_BYTES,
            "ids": msgpack.packb(ids, use_bin_type=False),
            "fields": fields,
        },
    )
    reply = unpacked(answer)
    found = reply["ids"]
    names = [None, *sorted_states]
    states: list[str | None] = [names[number] for number in reply["states"]]
    if None in states:
        in_lists = _find_in_lists(handle, [i for i, state in zip(found, states, strict=True) if state is None])
        states = [state or in_lists.get(job_id) for job_id, state in zip(found, states, strict=True)]
    chunk = Chunk(found, states, run_at_of(states, reply["scores"]), by_field(fields, reply["values"]))
    if again:
        # These jobs changed their state while the lists were searched, and so their fields, or are in no state.
        unplaced = [job_id for job_id, state in zip(found, states, strict=True) if state is None]
        while unplaced:
            done, moved = _read_ids(handle, unplaced, fields, again=False)
            chunk, unplaced = chunk.updated(moved), unplaced[done:]
    return reply["processed"], chunk


def _find_in_lists(handle: QueueHandle, ids: list[bytes]) -> dict[bytes, str]:
    """The states of jobs in lists, which are searched one by one, `active` first, as it is short."""
    found: dict[bytes, str] = {}
    for state in ("active", "wait", "paused"):
        wanted = [job_id for job_id in ids if job_id not in found]
        if wanted:
            found |= dict.fromkeys(_find_in_list(handle, handle.dialect.state_key(state), wanted), state)
    return found


def _find_in_list(handle: QueueHandle, key: StateKey, ids: list[bytes]) -> set[bytes]:
    found: set[bytes] = set()
    packed, position, length = msgpack.packb(ids, use_bin_type=False), 0, MAX_IDS
    while len(found) < len(ids) and length == MAX_IDS:
        length, *here = handle.connection.script(
            "read/find", {"list": handle.keys[key.key]}, {"ids": packed, "position": position, "window": MAX_IDS}
        )
        found.update(here)
        position += MAX_IDS
    return found


@dataclass
class _Memory:
    """The ids that were read last: at most REMEMBERED, in two generations."""

    _recent: set[bytes] = field(default_factory=set)
    _older: set[bytes] = field(default_factory=set)

    def fresh(self, ids: list[bytes]) -> list[int]:
        """Positions of the ids that were not read before."""
        recent, older = self._recent, self._older
        positions = []
        for position, job_id in enumerate(ids):
            if job_id not in recent and job_id not in older:
                recent.add(job_id)
                positions.append(position)
        if len(recent) > REMEMBERED // 2:
            self._older, self._recent = recent, set()
        return positions


#: The fields that jobs can be counted by.
BY: Final = ("priority", "name")
#: BullMQ: scores of prioritized jobs of one priority, half of them below it: `put_first` in bullmq/lib/waiting.lua.
_SCORES_OF_PRIORITY: Final = 2**32
_BELOW: Final = 2**31


def counts_by(handle: QueueHandle, by: str, states: Sequence[str] = ()) -> dict[str, dict[Any, int]]:
    """The number of jobs by state and `by`, priority or name; without states that have no jobs.

    states: only these; none given: all. Raises OptionError for another `by`, DialectError for an unknown state.
    """
    if by not in BY:
        raise expected("by", "one of " + ", ".join(BY), by)
    for state in states:
        handle.dialect.state_key(state)
    found = {
        state: _counts_of_state(handle, by, state) for state in handle.dialect.states if not states or state in states
    }
    return {state: dict(sorted(counted.items())) for state, counted in found.items() if counted}


def _counts_of_state(handle: QueueHandle, by: str, state: str) -> dict[Any, int]:
    """The number of jobs of one state by value."""
    if by == "priority" and "prioritized" in handle.dialect.states:
        if state == "prioritized":
            return _prioritized(handle)
        if state in ("wait", "paused"):
            waiting = counts(handle)[state]
            return {0: waiting} if waiting else {}
    counted: Counter[Any] = Counter()
    for chunk in read_jobs(handle, [state], [by]):
        counted.update(chunk.column(by))
    values = {raw: value_of(FIELDS[by], raw) for raw in counted}
    merged: Counter[Any] = Counter()
    for raw, jobs in counted.items():
        merged[values[raw] or (0 if by == "priority" else "")] += jobs
    return merged


def _prioritized(handle: QueueHandle) -> dict[Any, int]:
    """The number of prioritized jobs by priority: two calls per priority, for any number of jobs."""
    key, found, least = handle.keys["prioritized"], {}, 0
    while first := handle.connection.call("ZRANGEBYSCORE", key, least, LARGEST, "WITHSCORES", "LIMIT", 0, 1):
        priority = (whole(float(first[0][1])) + _BELOW) // _SCORES_OF_PRIORITY
        lowest = priority * _SCORES_OF_PRIORITY - _BELOW
        least = lowest + _SCORES_OF_PRIORITY
        found[priority] = int(handle.connection.call("ZCOUNT", key, lowest, f"({least}"))
    return found
