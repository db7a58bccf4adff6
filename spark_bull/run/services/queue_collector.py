"""Discovers the finished jobs of one queue for a collecting query, in the process that lives as long as the query."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Lock
from typing import Final

from spark_bull.core.clock import monotonic_s
from spark_bull.core.dialects.registry import others_spoken
from spark_bull.core.errors import ConnectionLost, DialectError, OptionError, ReaderInUse, ResultsLost
from spark_bull.core.queue.collect.result_ledger import LedgerLease, ResultLedger
from spark_bull.core.queue.collect.verbs import EVERYTHING, DiscoverResult, Horizon, Remaining

log = logging.getLogger("spark_bull")

#: Maximum time to wait until the connection of a killed query is closed.
HANDOVER_S: Final = 10.0
_POLL_S: Final = 0.1
#: Maximum number of entries that no batch has taken; beyond it, events stay in their stream.
MAX_UNREAD: Final = 1_000_000


class QueueCollector:
    """Owns the ledger of a reader and a queue. `ledger.owner` is the client name of the query's connections.

    starting: earliest, latest, or a time (ms since 1970) after which jobs finished. horizon: limit of the discovery.
    strict: whether lost results end the query. `first` is the position from which the ledger is read, `end` the
    position after its last entry, `left` whether `discover` has left jobs to the next call.
    """

    def __init__(self, ledger: ResultLedger, starting: str, horizon: Horizon = EVERYTHING, *, strict: bool) -> None:
        self.ledger = ledger
        self.first = self.end = 0
        self.left = False
        self._starting = starting
        self._strict = strict
        self._horizon = horizon
        self._done = False
        self._closed = False
        self._released = 0
        self._lock = Lock()

    @property
    def _queue(self) -> str:
        return self.ledger.handle.keys.queue

    def open(self, position: int | None) -> None:
        """Acquires the ledger to read on from `position`; None: the query has not read this queue before.

        Raises ReaderInUse, DialectError, ResultsLost or OptionError.
        """
        dialect = self.ledger.handle.dialect
        if self._starting.isdigit() and not dialect.has("finish-times"):
            raise OptionError(
                f"expected a time as `startingOffsets` only for dialects that store finish times, got queue "
                f"{self._queue} of dialect {dialect.name}: use earliest or latest"
            )
        previous_owner, protocol = self.ledger.holder()
        self._check_dialect(protocol or dialect.name, dialect.name)
        lease = self._acquire(previous_owner, position)
        if position is None:
            position = lease.start
        if not lease.start <= position <= lease.end:
            self._lost(
                f"the query is at position {position:,} of its results, but Redis has {lease.start:,} to "
                f"{lease.end:,}. An older checkpoint was used, Redis was restored from an older state, or a replica "
                "that lagged has become the primary"
            )
            if position > lease.end:
                lease = self.ledger.open("earliest", create=True, base=position, recreate=True)
            position = lease.start
        self.first, self.end, self._released = position, lease.end, lease.start

    def _check_dialect(self, expected: str, found: str) -> None:
        if expected != found:
            raise DialectError(
                f"expected queue {self._queue} of reader `{self.ledger.reader}` to have dialect {expected}, got {found}"
                ": use a new checkpoint and another `readerId`, or set `protocol`"
            )

    def check_dialect(self) -> None:
        """Raises DialectError if the dialect of the queue has changed, but not if a key is damaged."""
        handle = self.ledger.handle
        others = others_spoken(handle.connection, handle.keys, handle.dialect.name)
        self._check_dialect(handle.dialect.name, others or handle.dialect.name)

    def _acquire(self, previous_owner: str | None, position: int | None) -> LedgerLease:
        deadline = monotonic_s() + HANDOVER_S
        while True:
            if not previous_owner or previous_owner == self.ledger.owner or not self._is_connected(previous_owner):
                lease = self.ledger.open(self._starting, create=position is None, previous_owner=previous_owner or "")
                if lease.state == "lost":
                    return self._recreate(position or 0)
                if lease.state == "ok":
                    return lease
                previous_owner = lease.owner
            elif monotonic_s() > deadline:
                raise self._in_use(previous_owner)
            else:
                time.sleep(_POLL_S)

    def _in_use(self, owner: str) -> ReaderInUse:
        return ReaderInUse(
            f"expected `readerId` {self.ledger.reader} to be used by one query at a time, but another query reads "
            f"queue {self._queue} with it (connection {owner}): stop that query, or use another `readerId`"
        )

    def _is_connected(self, owner: str) -> bool:
        try:
            return any(client["name"] == owner for client in self.ledger.handle.connection.clients())
        except ConnectionLost as error:
            # Without permission for CLIENT LIST the new query takes over.
            log.info(
                "queue %s: could not check whether reader %s is in use: %s", self._queue, self.ledger.reader, error
            )
            return False

    def _recreate(self, position: int) -> LedgerLease:
        self._lost(
            f"the ledger of reader `{self.ledger.reader}` is missing, last position {position:,}: it expired because "
            "the query had not run for a week, or Redis was flushed or lost its data"
        )
        return self.ledger.open("earliest", create=True, base=position, recreate=True)

    def _lost(self, what: str) -> None:
        """Raises ResultsLost if strict, else logs what is lost."""
        if self._strict:
            raise ResultsLost(
                f"queue {self._queue}: {what}. Finished jobs may be lost; with failOnDataLoss=false the query "
                "continues with all finished jobs in Redis, and may deliver some of them again"
            )
        log.warning("queue %s: %s; continuing with the finished jobs in Redis", self._queue, what)

    def discover(self, enough: int, stop: Callable[[], bool]) -> bool:
        """Discovers finished jobs until the ledger has entries up to `enough`, or none are left; returns `left`.

        Events are always read to their end, because the stream is trimmed. stop: whether to return as soon as possible.
        Raises ReaderInUse or ResultsLost.
        """
        with self._lock:
            more = not self._done
            while more:
                found = self._discover_once()
                self.end, self.left = found.end, found.more
                is_enough = stop() or found.end >= enough
                more = found.more and (found.remaining is Remaining.EVENTS or not is_enough)
                self._done = self._horizon != EVERYTHING and not found.more
            return self.left

    def read_events(self) -> str | None:
        """Reads events into the ledger before the stream is trimmed; returns the id of the last one.

        Returns None without reading if the ledger is full, after `close`, or if `discover` would raise an error.
        """
        with self._lock:
            if self._closed or self.end - self._released >= MAX_UNREAD:
                return None
            more, cursor = True, ""
            while more:
                found = self.ledger.discover(strict=self._strict, events_only=True, known_end=self.end)
                if found.state != "ok":
                    return None
                self.end, more, cursor = found.end, found.remaining is Remaining.EVENTS, found.cursor
            return cursor

    def close(self) -> None:
        """Waits for a read of events that is under way, and prevents further ones."""
        with self._lock:
            self._closed = True

    def _discover_once(self) -> DiscoverResult:
        found = self._next()
        if found.state == "recreated":
            self._lost("the queue was deleted and created again")
            found = self._next(accept_recreated=True)
        if found.state == "lost":
            self._recreate(self.end)
            found = self._next()
        if found.state == "behind":
            self._lost(
                "Redis was restored from an older state, or a replica that lagged has become the primary: its results "
                f"end at {found.end:,} instead of {self.end:,}"
            )
            self.ledger.open("earliest", create=True, base=self.end, recreate=True)
            found = self._next()
        if found.state == "taken":
            raise self._in_use(found.owner)
        if found.missed:
            number = f"about {found.missed:,}" if found.missed > 0 else "an unknown number of"
            self._lost(
                f"the event stream was trimmed before it was read, and {number} finished jobs are lost. Jobs that are "
                "removed on completion leave nothing but their event: restart the query sooner, or let BullMQ keep "
                "more events (streams.events.maxLen of the Queue)"
            )
        return found

    def _next(self, *, accept_recreated: bool = False) -> DiscoverResult:
        return self.ledger.discover(
            self._horizon, accept_recreated=accept_recreated, strict=self._strict, known_end=self.end
        )

    def release(self, position: int, *, remove: bool) -> None:
        """Removes the entries before `position`, which are committed. remove: also deletes their jobs from Redis."""
        if position > self._released:
            if remove:
                self.ledger.archive(position)
            else:
                self.ledger.cut(position)
            self._released = position
