"""Finds the finished jobs of several queues for one reader of results, and says how many of each a batch takes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Final
from uuid import uuid4

from spark_bull.clock import monotonic_s
from spark_bull.dialects.registry import found_dialect
from spark_bull.errors import DialectError
from spark_bull.keys import QueueKeys
from spark_bull.options import Options
from spark_bull.queue.find import find_queues, is_glob
from spark_bull.queue.handle import QueueHandle
from spark_bull.queue.result_ledger import EVERYTHING, Horizon, ResultLedger
from spark_bull.services.event_reader import EventReader
from spark_bull.services.queue_collector import QueueCollector
from spark_bull.store.connection import Connection
from spark_bull.store.settings import settings_of

log = logging.getLogger("spark_bull")

#: How often queues that a glob matches, or that were missing, are looked for, and dialects looked at again.
REFRESH_S: Final = 15.0


class Collector:
    """For one query, in the process that lives as long as it does. `options`: those of a collecting read.

    Its connections carry a name of their own, by which other queries see that it is alive. `horizons`: finds only what
    had finished when they were taken, in the queues that there were.
    """

    def __init__(self, options: Options, reader: str, horizons: Mapping[str, Horizon] | None = None) -> None:
        self._options = options
        self._reader = reader
        self._owner = f"spark-bull:results:{uuid4().hex}"
        settings = settings_of(options)
        extra = dict(settings.extra) | {"client_name": self._owner}
        self._connection = Connection(replace(settings, extra=tuple(sorted(extra.items()))))
        self._found: dict[str, QueueCollector] = {}
        self._left_out: set[str] = set()
        self._open: dict[str, QueueCollector] = {}
        self._horizons = horizons
        self._looked = float("-inf")
        self._ahead: Future[None] | None = None
        # Up to a horizon, events are read by batches only.
        self._events = EventReader(settings, lambda: dict(self._open)) if horizons is None else None

    def first_positions(self) -> dict[str, int]:
        """Where the ledgers of this reader begin, by queue; only those that there are."""
        self._find()
        starts = {queue: found.ledger.start() for queue, found in self._found.items()}
        return {queue: start for queue, start in sorted(starts.items()) if start is not None}

    def horizons(self) -> dict[str, Horizon]:
        """How far to look, in the queues that there are, to find what has finished by now."""
        self._find()
        return {queue: found.ledger.horizon() for queue, found in self._found.items()}

    def advance(self, done: Mapping[str, int], most: int | None) -> dict[str, int]:
        """Positions behind the jobs of the next batch, after those that are done; `most` of them, None: all.

        What is before the positions done is committed, and let go. Raises ConnectionLost, DialectError, OptionError,
        ReaderInUse or ResultsLost.
        """
        if self._ahead is not None:
            ahead, self._ahead = self._ahead, None
            ahead.result()
        self._refresh(done)
        if self._events is not None and not self._events.started:
            self._events.start()
        self.release(done)
        starts = {queue: done.get(queue, self._open[queue].first) for queue in sorted(self._open)}
        self._discover(starts, most)
        there = {queue: self._open[queue].end - start for queue, start in starts.items()}
        taken = there if most is None else shares(there, most)
        # A queue that is not there now keeps its place.
        return dict(done) | {queue: start + taken[queue] for queue, start in starts.items()}

    def look_ahead(self, starts: Mapping[str, int], most: int) -> None:
        """Begins to find what a batch after these positions is to have, while another one is worked on."""
        if self._ahead is None:
            pool = ThreadPoolExecutor(1, thread_name_prefix="spark-bull-collector")
            self._ahead = pool.submit(self._discover, starts, most)
            pool.shutdown(wait=False)

    def _discover(self, starts: Mapping[str, int], most: int | None) -> None:
        for queue, start in starts.items():
            if queue in self._open:
                self._open[queue].discover(None if most is None else start + most)

    def release(self, done: Mapping[str, int]) -> None:
        """Lets go of all that is before these positions."""
        for queue, position in done.items():
            if queue in self._open:
                self._open[queue].release(position, remove=self._options["removeOnRead"])

    def newest(self) -> dict[str, int]:
        """Where the positions would be if all finished jobs were found."""
        return {queue: known.end + known.ledger.unseen() for queue, known in self._open.items()}

    def found(self) -> dict[str, int]:
        """Where the positions are with all that is found so far."""
        return {queue: known.end for queue, known in self._open.items()}

    def _refresh(self, done: Mapping[str, int]) -> None:
        """Now and then: opens the ledgers of queues that are new, and looks at the dialects of the others."""
        if monotonic_s() - self._looked < REFRESH_S:
            return
        self._find()
        for queue, found in self._found.items():
            if queue not in self._open:
                found.open(done.get(queue))
                self._open[queue] = found
            elif self._options["protocol"] == "auto":
                found.check_dialect()
        self._looked = monotonic_s()

    def close(self) -> None:
        """Ends its thread and its connections. Not needed where the process ends."""
        try:
            if self._events is not None and self._events.started:
                self._events.stop(0)
        finally:
            self._connection.close()

    def _find(self) -> None:
        """Finds the queues that there are: those named, and those that match."""
        connection, prefix = self._connection, self._options["prefix"]
        for name in (part.strip() for part in self._options["queue"].split(",")):
            for queue in find_queues(connection, prefix, name) if is_glob(name) else [name]:
                known = queue in self._found or queue in self._left_out
                wanted = not known and (self._horizons is None or queue in self._horizons)
                if wanted and (handle := self._handle(QueueKeys(queue, prefix), named=not is_glob(name))):
                    self._found[queue] = self._collector(handle)

    def _handle(self, keys: QueueKeys, *, named: bool) -> QueueHandle | None:
        """None for a queue whose dialect isn't known yet, or which a glob has found and that is of another one."""
        try:
            dialect = found_dialect(self._connection, keys, self._options["protocol"])
        except DialectError as error:
            if named:
                raise
            log.warning("left out: %s", error)
            self._left_out.add(keys.queue)
            return None
        if dialect is None:
            return None
        dialect.check_queue(keys.queue)
        return QueueHandle(self._connection, keys, dialect, self._options["bullmqVersion"])

    def _collector(self, handle: QueueHandle) -> QueueCollector:
        options = self._options
        ledger = ResultLedger(handle, self._reader, options["states"], options["lookbackMs"], self._owner)
        since = options["startingTimestamp"]
        starting = options["startingOffsets"] if since is None or since <= 0 else str(since)
        horizon = EVERYTHING if self._horizons is None else self._horizons[handle.keys.queue]
        return QueueCollector(ledger, starting, horizon, strict=options["failOnDataLoss"])


def shares(there: Mapping[str, int], most: int) -> dict[str, int]:
    """Deals `most` out to queues that have so many each: alike, and what one doesn't need to the others."""
    dealt: dict[str, int] = {}
    left = most
    for number, queue in enumerate(sorted(there, key=lambda name: there[name])):
        dealt[queue] = min(there[queue], left // (len(there) - number))
        left -= dealt[queue]
    return dealt
