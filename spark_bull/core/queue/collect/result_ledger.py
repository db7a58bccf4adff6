"""The ledger of a reader of results: the finished jobs of a queue, in the order in which they were found.

The Node libraries write finish times by the clock of the worker, trim their events, and may delete a finished job at
once. Scripts (core/lua/*/discover.lua) find each finish once and number it; a position is the number of earlier ones.

An entry is the finish of a job; `core/lua/lib/results.lua` describes its format. Entries are read with their jobs, as
columns. What happened to a job later is not shown: the time and, if the entry has it, the value come from the entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import compress
from typing import Any, Final, NamedTuple

import msgpack

from spark_bull.core.dialects.fields import Raw, text_of
from spark_bull.core.queue.collect import verbs
from spark_bull.core.queue.collect.verbs import EVERYTHING, RESULTS_TTL_MS, DiscoverResult, DiscoverSettings, Horizon
from spark_bull.core.queue.handle.handle import CHUNK_SIZE, QueueHandle
from spark_bull.core.queue.handle.job_fields import Columns, JobFields, opened_columns
from spark_bull.core.queue.jobs.objects import deleting_objects

_STATES: Final = {b"c": b"completed", b"f": b"failed"}
#: The field of a job's value, by its state.
_VALUE_FIELD: Final = {b"completed": "returnvalue", b"failed": "failedReason"}


class Entries(NamedTuple):
    """Some entries, as columns. Values: returnvalue or failedReason, if kept; gone: whether the job was when found."""

    states: Sequence[bytes]
    ids: Sequence[bytes]
    times: Sequence[bytes]
    values: Sequence[Raw]
    gone: Sequence[bool]


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
        entries = Entries(*zip(*map(_parsed, found), strict=True))
        columns, _, _ = self._fields.read(entries.ids)
        chunk = _result_chunk(entries, columns, self._fields.are_jobs(entries.ids, columns))
        return position + len(found), chunk

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


def _parsed(entry: bytes) -> tuple[bytes, bytes, bytes, Raw, bool]:
    """A value of each column of Entries."""
    state = _STATES.get(entry[:1])
    if state is not None:
        head, _, job_id = entry.partition(b":")
        return state, job_id, head[1:], None, False
    job_id, time, value, gone = msgpack.unpackb(entry[1:], raw=True)
    return _STATES[entry[:1].lower()], job_id, time, None if value is False else value, gone == 1


def _result_chunk(entries: Entries, columns: Columns, exist: Sequence[bool]) -> ResultChunk:
    """The entries with the fields of their jobs, `finishedOn` among them. exist: whether each of these exists."""
    for place, (time, finished) in enumerate(zip(entries.times, columns["finishedOn"], strict=True)):
        if finished != time and time:
            _restore(entries, columns, place)
    there: list[Any] = [
        b"there" if exists else b"gone" if gone else b"missing"
        for exists, gone in zip(exist, entries.gone, strict=True)
    ]
    return ResultChunk(len(exist), {**columns, "id": [*entries.ids], "state": [*entries.states], "there": there})


def _restore(entries: Entries, columns: Columns, place: int) -> None:
    """Gives the values of the entry to a job that was retried or removed since."""
    finished = columns["finishedOn"]
    for state, name in _VALUE_FIELD.items():
        values = columns.get(name)
        if values is not None and state != entries.states[place]:
            values[place] = None
        elif values is not None and (finished[place] is not None or values[place] is None):
            values[place] = entries.values[place]
    finished[place] = entries.times[place]


#: Events or jobs that one call examines.
LOOKED_AT: Final = 500
#: Number of slices of the look-back window.
SLICES: Final = 60
STATES: Final = ("completed", "failed")
#: Keys of the states of jobs that have not ended.
UNFINISHED: Final = ("wait", "paused", "active", "delayed", "prioritized", "waiting_children")


class LedgerLease(NamedTuple):
    """Result of acquiring a ledger: ok, lost, or taken (by `owner`), and the positions of its start and end."""

    state: str
    start: int = 0
    end: int = 0
    owner: str = ""


@dataclass(frozen=True)
class ResultLedger:
    """One queue's results for one reader. `owner`: the query that uses it now. Picklable."""

    handle: QueueHandle
    reader: str
    states: tuple[str, ...] = STATES
    lookback_ms: int = 60_000
    owner: str = field(default="", compare=False)

    @cached_property
    def _keys(self) -> dict[str, str]:
        return self.handle.keys.results(self.reader)

    @property
    def _slice_ms(self) -> int:
        return max(10, self.lookback_ms // SLICES)

    def _script(self, name: str, args: Mapping[str, Any]) -> Any:
        keys = self.handle.keys
        own = {name: keys[name] for name in ("id", "deleted", "events", *UNFINISHED, *STATES)}
        return self.handle.connection.script(f"results/{name}", {**self._keys, **own}, {"base": keys.base, **args})

    def start(self) -> int | None:
        """Position of the first entry, or None when there is no ledger."""
        base = self.handle.connection.call("HGET", self._keys["track"], "base")
        return None if base is None else int(base)

    def holder(self) -> tuple[str | None, str | None]:
        """The owner, and the dialect that the queue had when the ledger was made; None without a ledger."""
        owner, protocol = self.handle.connection.call("HMGET", self._keys["track"], "owner", "protocol")
        return text_of(owner), text_of(protocol)

    def open(
        self, starting: str, *, create: bool, recreate: bool = False, base: int = 0, previous_owner: str = ""
    ) -> LedgerLease:
        """Acquires the ledger for `owner` if it is free or held by `previous_owner`.

        starting: earliest, latest, or ms since 1970, for a new ledger, whose first position is `base`. create: creates
        a ledger if there is none; recreate: even if there is one.
        """
        state, *rest = self._script(
            "open",
            {
                "owner": self.owner,
                "previous_owner": previous_owner,
                "protocol": self.handle.dialect.name,
                "create": "recreate" if recreate else int(create),
                "first": base,
                "starting": starting,
                "lookback_ms": self.lookback_ms,
                "slice_ms": self._slice_ms,
                "ttl_ms": RESULTS_TTL_MS,
                "states": self.states,
            },
        )
        if state != b"ok":
            return LedgerLease(state.decode(), owner=rest[0].decode() if rest else "")
        return LedgerLease("ok", *rest)

    def discover(
        self,
        horizon: Horizon = EVERYTHING,
        *,
        accept_recreated: bool = False,
        strict: bool = False,
        events_only: bool = False,
        known_end: int = 0,
        most: int = LOOKED_AT,
    ) -> DiscoverResult:
        """Examines about `most` events and jobs.

        accept_recreated: continues with a queue that has been deleted since. strict: the next call reports jobs that
        are unaccounted for again. events_only: leaves the sets of finished jobs to a later call. known_end: position
        after the last entry that was found so far.
        """
        settings = DiscoverSettings(
            self.owner,
            self.states,
            self.lookback_ms,
            self._slice_ms,
            accept_recreated=accept_recreated,
            strict=strict,
            events_only=events_only,
            known_end=known_end,
        )
        return verbs.discover(self.handle, self._keys, settings, horizon, most=most)

    def horizon(self) -> Horizon:
        """The bounds within which all jobs finished by now are found. SETs have none: they are scanned whole."""
        return Horizon(*(bound.decode() for bound in self._script("horizon", {"states": self.states})))

    def unseen(self) -> int:
        """The approximate number of finished jobs not found yet, without those removed at once."""
        dialect, keys = self.handle.dialect, self.handle.keys
        names = [f"{state}:{name}" for state in self.states for name in ("at", "floor")]
        track = dict(zip(names, self.handle.connection.call("HMGET", self._keys["track"], *names), strict=True))
        commands: list[tuple[Any, ...]] = []
        for state in self.states:
            since = track[f"{state}:at"] or track[f"{state}:floor"] or "-inf"
            bounds = () if dialect.state_key(state).kind == "set" else (since, "+inf")
            count = "ZCOUNT" if bounds else "SCARD"
            commands += [(count, key, *bounds) for key in (keys[state], self._keys[f"seen_{state}"])]
        counts = self.handle.connection.pipeline(commands)
        return sum(max(0, counts[i] - counts[i + 1]) for i in range(0, len(counts), 2))

    def cut(self, position: int) -> None:
        """Removes the entries before a position."""
        self._script("cut", {"position": position})

    def archive(self, position: int) -> None:
        """Deletes the jobs of the entries before a position, unless they were retried since, and the entries."""
        start: int | None = self.start()
        with deleting_objects(self.handle, lambda: self._ids(start, position)):
            while start is not None and start < position:
                start = verbs.archive(self.handle, self._keys, position)

    def _ids(self, start: int | None, position: int) -> Iterator[bytes]:
        """The ids of the jobs of the entries before a position."""
        rows, place = self.rows(()), position if start is None else start
        while place < position:
            behind, chunk = rows.read(place, position)
            ids = chunk.columns.get("id", [])
            yield from (job_id for job_id in ids if job_id is not None)
            place = max(behind, place + 1)

    def end_of(self, start: int, stop: int, names: Sequence[str], size: int) -> int:
        """The last position from `start` to `stop` up to which jobs with these fields have `size` bytes; after one."""
        rows, position = self.rows(names), start
        while position < stop:
            behind, sizes = rows.sizes(position, stop)
            for place, job_size in enumerate(sizes, behind - len(sizes)):
                size -= job_size
                if size < 0:
                    return max(place, start + 1)
            # The batch reports entries that are missing.
            position = behind if behind > position else stop
        return stop

    def rows(self, names: Sequence[str], most: int = CHUNK_SIZE) -> ResultRows:
        """A reader of the entries with these fields of their jobs, at most `most` entries per call."""
        return ResultRows(self.handle, self._keys["ledger"], self._keys["track"], names, most)
