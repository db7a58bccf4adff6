"""The ledger of a reader of results: the finished jobs of a queue, in the order in which they were found.

The Node libraries write finish times by the clock of the worker, trim their events, and may delete a finished job at
once. Scripts (core/lua/*/discover.lua) find each finish once and number it; a position is the number of earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

from spark_bull.core.dialects.events import ENDS
from spark_bull.core.dialects.fields import text_of
from spark_bull.core.queue.collect import verbs
from spark_bull.core.queue.collect.result_rows import ResultRows
from spark_bull.core.queue.collect.verbs import EVERYTHING, RESULTS_TTL_MS, DiscoverResult, Horizon
from spark_bull.core.queue.handle.handle import CHUNK_SIZE, QueueHandle
from spark_bull.core.queue.jobs.objects import deleting_objects

#: Events or jobs that one call examines.
LOOKED_AT: Final = 500
#: Number of slices of the look-back window.
SLICES: Final = 60
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
    states: tuple[str, ...] = ENDS
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
        own = {name: keys[name] for name in ("id", "deleted", "events", *UNFINISHED, *ENDS)}
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
        return verbs.discover(
            self.handle,
            self._keys,
            horizon,
            owner=self.owner,
            states=self.states,
            lookback_ms=self.lookback_ms,
            slice_ms=self._slice_ms,
            accept_recreated=int(accept_recreated),
            strict=int(strict),
            events_only=int(events_only),
            known_end=known_end,
            most=most,
        )

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
