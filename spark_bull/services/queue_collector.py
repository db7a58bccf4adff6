"""Finds the finished jobs of one queue for one reader of results, in the process that lives as long as the query."""

from __future__ import annotations

import logging
import time
from threading import Lock
from typing import Final

from spark_bull.clock import monotonic_s
from spark_bull.dialects.registry import detect
from spark_bull.errors import ConnectionLost, DialectError, OptionError, ReaderInUse, ResultsLost
from spark_bull.queue.result_ledger import EVERYTHING, DiscoverResult, Horizon, LedgerLease, Remaining, ResultLedger

log = logging.getLogger("spark_bull")

#: How long the connection of a query that was killed may take to go.
HANDOVER_S: Final = 10.0
_POLL_S: Final = 0.1
#: Entries that no batch has taken yet, from which on events are left in their stream.
MAX_UNREAD: Final = 1_000_000


class QueueCollector:
    """`ledger.owner` names the query, and its connection. `strict`: what can't be delivered ends the query.

    starting: earliest, latest, or from jobs on that have finished since a time, ms since 1970. `horizon`: how far to
    look. `first` is the position from which an open ledger is read, `end` the one behind the last entry.
    """

    def __init__(self, ledger: ResultLedger, starting: str, horizon: Horizon = EVERYTHING, *, strict: bool) -> None:
        self.ledger = ledger
        self.first = self.end = 0
        self._starting = starting
        self._strict = strict
        self._horizon = horizon
        self._done = False
        self._released = 0
        self._lock = Lock()

    @property
    def _queue(self) -> str:
        return self.ledger.handle.keys.queue

    def open(self, position: int | None) -> None:
        """Takes the ledger, to go on from a position; None: the query has not read this queue before.

        Raises ReaderInUse, DialectError, ResultsLost or OptionError.
        """
        dialect = self.ledger.handle.dialect
        if self._starting.isdigit() and not dialect.has_finish_times:
            raise OptionError(
                f"`startingTimestamp` needs times of finishing, and queue {self._queue} speaks {dialect.name}, which "
                "keeps none: use `startingOffsets`"
            )
        previous_owner, protocol = self.ledger.holder()
        self._check_dialect(protocol)
        held = self._take(previous_owner, position)
        if position is None:
            position = held.start
        if not held.start <= position <= held.end:
            self._lost(
                f"the query has come to position {position:,} of its results, and Redis has {held.start:,} to "
                f"{held.end:,}: the checkpoint is an older one, or Redis was restored from an older state"
            )
            if position > held.end:
                held = self.ledger.open("earliest", create=True, base=position, recreate=True)
            position = held.start
        self.first, self.end, self._released = position, held.end, held.start

    def _check_dialect(self, protocol: str | None) -> None:
        now = self.ledger.handle.dialect.name
        if protocol is not None and protocol != now:
            raise DialectError(
                f"queue {self._queue} spoke {protocol} when reader `{self.ledger.reader}` began, and speaks {now} now: "
                "give it a new checkpoint and another `readerId`, or say the right `protocol`"
            )

    def check_dialect(self) -> None:
        """Raises DialectError when the queue has changed its dialect since."""
        found = detect(self.ledger.handle.connection, self.ledger.handle.keys)
        self._check_dialect(found.name if found else None)

    def _take(self, previous_owner: str | None, position: int | None) -> LedgerLease:
        deadline = monotonic_s() + HANDOVER_S
        while True:
            if not previous_owner or previous_owner == self.ledger.owner or not self._is_connected(previous_owner):
                held = self.ledger.open(self._starting, create=position is None, previous_owner=previous_owner or "")
                if held.state == "lost":
                    return self._recreate(position or 0)
                if held.state == "ok":
                    return held
                previous_owner = held.owner
            elif monotonic_s() > deadline:
                raise self._in_use(previous_owner)
            else:
                time.sleep(_POLL_S)

    def _in_use(self, owner: str) -> ReaderInUse:
        return ReaderInUse(
            f"expected `readerId` {self.ledger.reader} to be used by one query at a time, but another one that reads "
            f"queue {self._queue} is alive (connection {owner}): stop it, or take another `readerId`"
        )

    def _is_connected(self, owner: str) -> bool:
        try:
            return any(client["name"] == owner for client in self.ledger.handle.connection.clients())
        except ConnectionLost as error:
            # Where an ACL forbids to look, the last one that comes takes over.
            log.info("queue %s: can't see whether reader %s is in use: %s", self._queue, self.ledger.reader, error)
            return False

    def _recreate(self, position: int) -> LedgerLease:
        self._lost(
            f"the ledger of reader `{self.ledger.reader}` is gone, after position {position:,}: it expired because the "
            "query had not run for a week, or Redis was flushed or lost its data"
        )
        return self.ledger.open("earliest", create=True, base=position, recreate=True)

    def _lost(self, what: str) -> None:
        """Raises ResultsLost, or says what is lost and goes on."""
        if self._strict:
            raise ResultsLost(
                f"queue {self._queue}: {what}. Finished jobs may be lost; with failOnDataLoss=false the query goes on "
                "with all that are there, and may deliver some again"
            )
        log.warning("queue %s: %s; going on with the finished jobs that are there", self._queue, what)

    def discover(self, enough: int | None) -> None:
        """Looks for finished jobs until there are entries up to position `enough` (None: all), or none is left to find.

        Events are read to their end all the same, as they don't stay. Raises ReaderInUse or ResultsLost.
        """
        with self._lock:
            more = not self._done
            while more:
                found = self._look()
                self.end = found.end
                more = found.more and (found.remaining is Remaining.EVENTS or enough is None or found.end < enough)
                self._done = self._horizon != EVERYTHING and not found.more

    def read_events(self) -> str | None:
        """Reads the events that there are, before they leave the stream; returns the id of the last one.

        None, and nothing was read, when the ledger is full, or when `discover` has an error to raise.
        """
        with self._lock:
            if self.end - self._released >= MAX_UNREAD:
                return None
            more, cursor = True, ""
            while more:
                found = self.ledger.discover(strict=self._strict, events_only=True)
                if found.state != "ok" or found.end < self.end:
                    return None
                self.end, more, cursor = found.end, found.remaining is Remaining.EVENTS, found.cursor
            return cursor

    def _look(self) -> DiscoverResult:
        found = self.ledger.discover(self._horizon, strict=self._strict)
        if found.state == "recreated":
            self._lost("it has been deleted and recreated since it was looked at")
            found = self.ledger.discover(self._horizon, strict=self._strict, accept_recreated=True)
        if found.state == "lost":
            self._recreate(self.end)
            found = self.ledger.discover(self._horizon, strict=self._strict)
        if found.state == "taken":
            raise self._in_use(found.owner)
        if found.end < self.end:
            self._lost(f"Redis was restored from an older state: its results end at {found.end:,}, not {self.end:,}")
            self.ledger.open("earliest", create=True, base=self.end, recreate=True)
            found = self.ledger.discover(self._horizon, strict=self._strict)
        if found.missed:
            number = f"about {found.missed:,}" if found.missed > 0 else "an unknown number of"
            self._lost(
                f"events left the stream before they were read, and {number} finished jobs are gone without a result "
                "(jobs removed on completion are known by their events only): restart the query sooner, or let BullMQ "
                "keep more events (streams.events.maxLen of the Queue)"
            )
        return found

    def release(self, position: int, *, remove: bool) -> None:
        """Forgets entries whose batch is committed; `remove`: deletes their jobs from Redis, too."""
        if position > self._released:
            if remove:
                self.ledger.archive(position)
            else:
                self.ledger.cut(position)
            self._released = position
