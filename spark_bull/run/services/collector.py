"""Discovers the finished jobs of several queues for a collecting query, and divides each batch among the queues.

The events of the queues are read as soon as they arrive, as a job that is removed on completion leaves nothing else.
BullMQ trims its event stream to about 10,000 entries. At thousands of jobs per second the stream is trimmed within
seconds, which may be less than the query's trigger interval.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from threading import Event
from typing import Final, TypeVar
from uuid import uuid4

from spark_bull.core.clock import monotonic_s
from spark_bull.core.dialects.fields import FIELDS, fields_of
from spark_bull.core.dialects.registry import found_dialect
from spark_bull.core.errors import DialectError, QueueDamaged
from spark_bull.core.keys import QueueKeys
from spark_bull.core.options.redis_settings import RedisSettings
from spark_bull.core.options.table import CollectOptions
from spark_bull.core.queue.collect.result_ledger import ResultLedger
from spark_bull.core.queue.collect.verbs import EVERYTHING, Horizon
from spark_bull.core.queue.dispatch.written import find_written
from spark_bull.core.queue.handle.handle import QueueHandle, handle_of, open_handle
from spark_bull.core.queue.monitor.find import is_glob, select_queues, warn_of_missing
from spark_bull.core.queue.shards.layout import Spread, given_queues, selection_of
from spark_bull.core.store.connection import Connection
from spark_bull.run.claims.waits import DamagedQueues
from spark_bull.run.services.admission import Admission
from spark_bull.run.services.queue_collector import QueueCollector
from spark_bull.run.services.service import LossCheck, Service, StreamSignal

#: Minimum interval between two reads.
PAUSE_S: Final = 0.05
#: Pause after a queue whose events cannot be read.
BLOCKED_PAUSE_S: Final = 1.0


class EventReader(Service):
    """Reads the events of the queues that `queues()` returns, by name. Dialects without an event stream are skipped."""

    def __init__(self, settings: RedisSettings, queues: Callable[[], Mapping[str, QueueCollector]]) -> None:
        super().__init__("event reader")
        self._signal = StreamSignal(settings)
        self._queues = queues
        self._cursors: dict[str, str] = {}
        self._damaged = DamagedQueues()

    def round(self) -> None:
        queues = {
            collector.ledger.handle.keys["events"]: collector
            for collector in self._queues().values()
            if collector.ledger.handle.dialect.has("event-stream")
        }
        for stream in queues.keys() - self._cursors.keys():
            self._read(stream, queues[stream])
        last = {stream: self._cursors[stream] for stream in queues if stream in self._cursors}
        if not last:
            self._over.wait(BLOCKED_PAUSE_S)
            return
        try:
            changed = self._signal.wait(last)
        except QueueDamaged:
            # The next round reads each queue by itself, and passes over the damaged one.
            self._cursors.clear()
            return
        if self._over.is_set():
            return
        for stream in changed:
            self._read(stream, queues[stream])
        self._over.wait(PAUSE_S)

    def wake(self) -> None:
        """Lets the wait of the current round end when Redis does."""
        self._signal.stop_retrying()

    def _read(self, stream: str, queue: QueueCollector) -> None:
        cursor = self._damaged.attempt(queue.ledger.handle.keys, "read its events", queue.read_events)
        if cursor is None:
            self._cursors.pop(stream, None)
            self._over.wait(BLOCKED_PAUSE_S)
        else:
            self._cursors[stream] = cursor


log = logging.getLogger("spark_bull")

T = TypeVar("T")

#: Interval at which new queues are searched for, and dialects are checked, s.
REFRESH_S: Final = 15.0
#: A batch begins when this number of jobs is discovered: the others are discovered while it is worked on.
ENOUGH_JOBS: Final = 50_000


def check_servers(options: CollectOptions) -> None:
    """Checks that the Redis of these options can be used, and knows the write that they name.

    Raises OptionError, DialectError or ConnectionLost.
    """
    named = [queue for queue in selection_of(options) if not is_glob(queue)]
    Connection(options.redis).check(options.prefix, named, write=True)
    if options.write_id is not None:
        find_written([open_handle(options, queue) for queue in named], options.write_id)


class Collector:
    """Collects for one query, in the process that lives as long as the query. options: options of a collecting read.

    The client name of its connections is unique, so that other queries can see that it is alive. horizons: limits the
    collection to the queues and finished jobs that existed when they were taken. columns: what is read of each job.
    """

    def __init__(
        self,
        options: CollectOptions,
        reader: str,
        horizons: Mapping[str, Horizon] | None = None,
        columns: Sequence[str] = tuple(FIELDS),
    ) -> None:
        self._options = options
        self._spread = Spread(options, given_queues(options))
        self._reader = reader
        self._owner = f"spark-bull:results:{uuid4().hex}"
        settings = options.redis
        extra = dict(settings.extra) | {"client_name": self._owner}
        self._connection = Connection(replace(settings, extra=tuple(sorted(extra.items()))))
        self._found: dict[str, QueueCollector] = {}
        self._skipped: set[str] = set()
        self._open: dict[str, QueueCollector] = {}
        self._horizons = horizons
        #: Whether the query may end with the next batch, so that a damaged queue is not waited for.
        self._may_end = horizons is not None
        self._damaged = DamagedQueues()
        self._losses = LossCheck(strict=options.fail_on_data_loss, damaged=self._damaged)
        self._has_looked = False
        self._refreshed_at = float("-inf")
        self._admission = Admission(
            options.min_jobs_per_trigger, options.max_trigger_delay_ms, options.max_bytes_per_trigger
        )
        self._fields = fields_of(columns)
        self._prefetch: Future[None] | None = None
        self._stop_prefetch = Event()
        # With horizons the query ends soon, and its batches read all events.
        self._events = EventReader(settings, lambda: dict(self._open)) if horizons is None else None

    def first_positions(self) -> dict[str, int]:
        """Returns the start position of each existing ledger of this reader, by queue."""
        self._find()
        starts = {queue: found.ledger.start() for queue, found in self._found.items()}
        return {queue: start for queue, start in sorted(starts.items()) if start is not None}

    def horizons(self) -> dict[str, Horizon]:
        """Returns the current horizon of each existing queue. Raises QueueDamaged."""
        self._may_end = True
        self._find()
        return {queue: found.ledger.horizon() for queue, found in self._found.items()}

    def advance(self, done: Mapping[str, int], max_jobs: int | None, *, may_end: bool = False) -> dict[str, int]:
        """Returns the end positions of the next batch, which follows `done`. max_jobs: of all queues; None: no limits.

        may_end: whether the query may end with this batch. Everything before `done` is committed and released. If there
        are more than ENOUGH_JOBS, the batch may be smaller than it could be. It is empty while it waits for more jobs.
        Raises ConnectionLost, DataLost, DialectError, OptionError or ReaderInUse.
        """
        self._may_end = may_end or self._horizons is not None
        if self._prefetch is not None:
            prefetch, self._prefetch = self._prefetch, None
            self._stop_prefetch.set()
            prefetch.result()
        self._refresh(done)
        self._losses.run([one.ledger.handle for one in self._open.values()])
        if self._events is not None and not self._events.started:
            self._events.start()
        self.release(done)
        starts = {queue: done.get(queue, self._open[queue].first) for queue in sorted(self._open)}
        self._discover(starts, sys.maxsize if max_jobs is None else min(max_jobs, self._enough))
        available = {queue: self._open[queue].end - start for queue, start in starts.items()}
        taken = available if max_jobs is None else shares(available, max_jobs)
        spans = {queue: (start, start + taken[queue]) for queue, start in starts.items()}
        ends = {queue: stop for queue, (_, stop) in spans.items()}
        if max_jobs is not None:
            if not self._may_end and self._admission.waits(sum(taken.values())):
                return dict(done)
            ends = self._admission.cut(spans, self._end_of)
        # Queues that do not exist now keep their positions.
        return dict(done) | ends

    @property
    def _enough(self) -> int:
        return max(ENOUGH_JOBS, self._options.min_jobs_per_trigger)

    def _end_of(self, queue: str, start: int, stop: int, size: int) -> int:
        measure = partial(self._open[queue].ledger.end_of, start, stop, self._fields, size)
        end = self._attempt(queue, "measure results", measure)
        return start if end is None else end

    def discover_ahead(self, starts: Mapping[str, int], max_jobs: int) -> None:
        """Discovers the jobs of the batch after these positions in the background, until `advance`, if any are left."""
        left = any(self._open[queue].left for queue in starts if queue in self._open)
        if left and self._prefetch is None:
            self._stop_prefetch.clear()
            pool = ThreadPoolExecutor(1, thread_name_prefix="spark-bull-collector")
            self._prefetch = pool.submit(self._discover, starts, max_jobs, self._stop_prefetch.is_set)
            pool.shutdown(wait=False)

    def _discover(self, starts: Mapping[str, int], max_jobs: int, stop: Callable[[], bool] = lambda: False) -> None:
        """Discovers until the queues have `max_jobs` together after these positions, or none are left.

        In turns, in which each queue discovers its share of those that are missing. In the first one, each queue reads
        its events to their end.
        """
        queues = [queue for queue in starts if queue in self._open]
        turn, after, missing = queues, starts, max_jobs
        while turn:
            share, left = -(-missing // len(turn)), list[str]()
            for queue in turn:
                if stop():
                    return
                discover = partial(self._open[queue].discover, after[queue] + share, stop)
                if self._attempt(queue, "discover results", discover):
                    left.append(queue)
            after = self.found()
            missing = max_jobs - sum(after[queue] - starts[queue] for queue in queues)
            turn = left if missing > 0 else []

    def release(self, done: Mapping[str, int]) -> None:
        """Releases all entries before these positions."""
        for queue, position in done.items():
            if queue in self._open:
                release = partial(self._open[queue].release, position, remove=self._options.remove_on_read)
                self._attempt(queue, "release results", release)

    def newest(self) -> dict[str, int]:
        """Returns the end positions as if all finished jobs were discovered."""
        return {queue: collector.end + collector.ledger.unseen() for queue, collector in self._open.items()}

    def found(self) -> dict[str, int]:
        """Returns the end positions of all discovered jobs."""
        return {queue: collector.end for queue, collector in self._open.items()}

    def _refresh(self, done: Mapping[str, int]) -> None:
        """Opens the ledgers of new queues and checks the dialects of the others, every REFRESH_S."""
        if monotonic_s() - self._refreshed_at < REFRESH_S:
            return
        self._find()
        for queue, found in self._found.items():
            if queue not in self._open:
                self._attempt(queue, "open its ledger", partial(self._open_ledger, found, done.get(queue)))
            elif self._options.protocol == "auto":
                self._attempt(queue, "check its dialect", found.check_dialect)
        self._refreshed_at = monotonic_s()

    def _open_ledger(self, found: QueueCollector, position: int | None) -> None:
        found.open(position)
        self._open[found.ledger.handle.keys.queue] = found

    def _attempt(self, queue: str, step: str, run: Callable[[], T]) -> T | None:
        """The result of a step; None if the queue is damaged and the query goes on for long."""
        if self._may_end:
            return run()
        return self._damaged.attempt(QueueKeys(queue, self._options.prefix), step, run)

    def close(self) -> None:
        """Stops the thread, waits for a read under way, and closes the connections. Not required before the exit."""
        try:
            if self._events is not None and self._events.started:
                self._events.stop(0)
        finally:
            for collector in self._open.values():
                collector.close()
            self._connection.close()

    def _find(self) -> None:
        """Adds collectors for the queues that exist: the named ones and those that match a glob."""
        connection, prefix = self._connection, self._options.prefix
        selection = self._spread.names()
        if not self._has_looked and self._horizons is None:
            warn_of_missing(connection, prefix, [queue for queue in selection if not is_glob(queue)])
        self._has_looked = True
        for queue in select_queues(connection, prefix, selection):
            known = queue in self._found or queue in self._skipped
            is_new = not known and (self._horizons is None or queue in self._horizons)
            if is_new and (handle := self._handle(QueueKeys(queue, prefix), named=queue in selection)):
                self._found[queue] = self._collector(handle)

    def _handle(self, keys: QueueKeys, *, named: bool) -> QueueHandle | None:
        """Opens a queue. None if its dialect is not known yet, or if it matches a glob but has another dialect."""
        find = partial(found_dialect, self._connection, keys, self._options.protocol)
        try:
            dialect = self._attempt(keys.queue, "detect its dialect", find)
        except DialectError as error:
            if named or isinstance(error, QueueDamaged):
                raise
            log.warning("skipped a queue: %s", error)
            self._skipped.add(keys.queue)
            return None
        if dialect is None:
            return None
        return handle_of(self._connection.at(keys.base), keys, dialect, self._options)

    def _collector(self, handle: QueueHandle) -> QueueCollector:
        options = self._options
        ledger = ResultLedger(handle, self._reader, options.states, options.lookback_ms, self._owner)
        horizon = EVERYTHING if self._horizons is None else self._horizons[handle.keys.queue]
        return QueueCollector(ledger, options.starting_offsets, horizon, strict=options.fail_on_data_loss)


def shares(available: Mapping[str, int], limit: int) -> dict[str, int]:
    """Divides `limit` evenly among the queues; what a queue does not need goes to the others."""
    result: dict[str, int] = {}
    left = limit
    for number, queue in enumerate(sorted(available, key=lambda name: available[name])):
        result[queue] = min(available[queue], left // (len(available) - number))
        left -= result[queue]
    return result
