"""Claiming as a stream: jobs of a queue, locked for this query, arrive as micro-batches.

latestOffset() runs in one process for the lifetime of the query; it claims jobs and appends them to the ledger. An
offset is the number of jobs claimed so far, so that a repeated batch has the same jobs, also after a restart. read()
runs in tasks and reads the fields of the jobs. The sink (mode=settle) settles them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from spark_bull.core.clock import monotonic_s
from spark_bull.core.error_text import short_errors
from spark_bull.core.errors import ConnectionLost, OptionError, QueueDamaged
from spark_bull.core.model.limits import WorkSettings, default_worker
from spark_bull.core.options.parse import parse_options
from spark_bull.core.options.table import ClaimOptions
from spark_bull.core.queue.handle.handle import CHUNK_SIZE, QueueHandle, open_handle
from spark_bull.core.queue.jobs.read import counts
from spark_bull.core.queue.manage.manage import is_paused
from spark_bull.core.queue.monitor.find import describe
from spark_bull.core.queue.work.claim import ClaimedChunk, limited_groups_ms, read_chunk, start_chunk, unpack_claimed
from spark_bull.core.queue.work.claim_ledger import ClaimLedger, Portion
from spark_bull.run.claims.claimer import BatchSize, Claimer
from spark_bull.run.claims.waits import BLOCK_S, Damage, retry_until_connected
from spark_bull.run.services.admission import Admission
from spark_bull.run.slot.status import lag_of
from spark_bull.spark.platform.arrow import to_arrow_schema
from spark_bull.spark.platform.datasource import (
    PASSES_START,
    FirstBatch,
    LimitedReader,
    ReadAllAvailable,
    ReadLimit,
    begin_task,
    check_reader,
    read_offset,
)
from spark_bull.spark.schemas import CLAIM_SCHEMA
from spark_bull.spark.work.claim_batch import claim_batch

log = logging.getLogger("spark_bull")

T = TypeVar("T")

#: Interval of the attempts to claim while other workers hold the concurrency of the queue, ms.
FULL_MS: Final = 500


class ClaimRange(InputPartition):
    """Positions start..stop of a ledger, the last one excluded. `portions`: some of these jobs; empty: all of them."""

    def __init__(self, reader: str, start: int, stop: int, portions: Sequence[Portion] = ()) -> None:
        super().__init__((reader, start, stop))
        self.reader = reader
        self.start = start
        self.stop = stop
        self.portions = list(portions)


def claim_options(raw: Mapping[str, str]) -> ClaimOptions:
    """The options of a claiming read. Raises OptionError for an invalid one, and without exactly one queue."""
    if "maxbytespertrigger" in map(str.lower, raw):
        raise OptionError(
            "expected no `maxBytesPerTrigger` with mode=claim, as Redis gives out jobs by their number and a job that "
            "is claimed cannot wait for another micro-batch: set `maxJobsPerTrigger`"
        )
    options = parse_options(raw, ClaimOptions)
    if not options.queue:
        raise OptionError("expected the option `queue` (one queue) with mode=claim, got none")
    return options


def claim_reader(raw: Mapping[str, str], schema: StructType = CLAIM_SCHEMA) -> ClaimReader:
    """The reader of `readStream … option("mode", "claim")`. schema: some of the columns of claimed jobs, or all.

    Raises OptionError or ConnectionLost.
    """
    options = claim_options(raw)
    assert options.queue
    handle = open_handle(options, options.queue)
    handle.dialect.check_options(options)
    handle.dialect.check_work(handle.keys.queue)
    handle.connection.check(handle.keys.prefix, [handle.keys.queue], write=True)
    return ClaimReader(handle, options, schema)


@short_errors
class ClaimReader(LimitedReader):
    """Offsets are {"claimed": jobs claimed so far, "reader": name of the ledger}."""

    def __init__(self, handle: QueueHandle, options: ClaimOptions, schema: StructType) -> None:
        self._handle = handle
        self._schema = to_arrow_schema(schema)
        self._size = BatchSize(options.max_jobs_per_trigger, options.min_jobs_per_trigger)
        self.most = self._size.most
        self._admission = Admission(options.min_jobs_per_trigger, options.max_trigger_delay_ms)
        self._is_patient = options.min_jobs_per_trigger > 1
        #: Whether no job could be claimed for the last batch.
        self._was_idle = True
        self._rows = options.rows_per_partition
        #: One call claims a portion, and a portion is read by one task.
        self._chunk_size: int = min(options.chunk_size, options.rows_per_partition)
        self._lock_ms = options.lock_ms
        self._worker = options.worker_name or ""
        self._limiter = options.limiter
        self._group = options.group
        self._given_reader = options.reader_id
        self._reader = options.reader_id or uuid4().hex[:16]
        #: Number of jobs that an AvailableNow query may still claim; None: any number.
        self._left: int | None = None
        #: Whether a damaged queue is waited for, until it is repaired.
        self._patient = True
        #: Whether the query may end with the next batch, so that jobs claimed ahead would stay active.
        self._may_end = not PASSES_START
        #: Whether the wait for other workers was logged.
        self._has_warned = False
        self._damage = Damage(self._log_damage)
        self._claimer: Claimer | None = None
        self._newest = 0
        #: Number of jobs claimed when the current batch was planned.
        self._end = 0
        #: Jobs of the current batch, and when it began.
        self._batch: tuple[int, float] | None = None

    def _read(self, offset: Mapping[str, Any]) -> tuple[int, str]:
        """The number of jobs claimed so far, and the reader. Raises SparkBullError."""
        claimed, reader = read_offset(offset, lambda o: (int(o["claimed"]), str(o["reader"])))
        check_reader(self._given_reader, reader)
        return claimed, reader

    def initialOffset(self) -> dict[str, Any]:
        return {"claimed": 0, "reader": self._reader}

    def prepareForTriggerAvailableNow(self) -> None:
        self._patient = False
        self._left = self._ask(lambda: lag_of(self._handle))
        if self._ask(lambda: is_paused(self._handle)):
            log.warning(
                "queue %s is paused: the query ends without having claimed its jobs, unless the queue is resumed",
                self._handle.keys.queue,
            )

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Claims jobs, unless claimed jobs are left that are in no batch yet.

        Those claimed ahead become several batches if the size of a batch has shrunk since.
        """
        self._end_batch()
        first, reader = self._read(start)
        most = min(getattr(limit, "max_rows", self.most), self._size.current)
        claimer = self._claimer_of(reader)
        if self._left is not None or isinstance(limit, FirstBatch):
            # An AvailableNow query ends when no job is claimed.
            self._ask(lambda: self._claim_from(claimer, first, most, may_end=True))
        else:
            if self._damage.rest_s:
                return start
            try:
                self._claim_from(claimer, first, most, may_end=isinstance(limit, ReadAllAvailable))
            except ConnectionLost as error:
                log.warning("queue %s: no jobs are claimed, trying again: %s", self._handle.keys.queue, error)
                return start
            except QueueDamaged as error:
                self._damage.begin(error)
                return start
            self._damage.end()
        return {"claimed": claimer.end_of_batch(first, self._end, most), "reader": reader}

    def _claim_from(self, claimer: Claimer, first: int, most: int, *, may_end: bool = False) -> None:
        """Claims up to `most` jobs, unless jobs at the position `first` were claimed before.

        may_end: whether the query ends when none is claimed, so that the batch waits for no more jobs.
        """
        self._end = claimer.end()
        if self._end < first:
            log.warning(
                "queue %s: the ledger of reader %s has expired or was deleted. The jobs of its last batch may be "
                "processed again, as they return to the queue when their locks expire",
                self._handle.keys.queue,
                claimer.ledger.reader,
            )
            claimer.go_on_at(first)
        if self._end <= first:
            if self._left is not None:
                claimed = self._claim_of_left(claimer, most)
            elif not may_end and self._is_patient and self._admission.waits(lag_of(self._handle)):
                claimed = 0
            else:
                # The tasks of an idle query begin with a small batch, while the next jobs are claimed.
                claimed = claimer.claim(min(most, self._size.least) if self._was_idle else most)
            self._end = first + claimed
        self._was_idle = self._end <= first

    def _log_damage(self, error: str) -> None:
        queue = self._handle.keys.queue
        if error:
            log.error("queue %s: no jobs are claimed until it is repaired: %s", queue, error)
        else:
            log.warning("queue %s is no longer damaged: jobs are claimed again", queue)

    def _end_batch(self) -> None:
        """Adapts the size of the next batches to the one that has ended."""
        if self._batch is not None:
            (jobs, began), self._batch = self._batch, None
            self._size.update(jobs, monotonic_s() - began)

    def _claim_of_left(self, claimer: Claimer, most: int) -> int:
        """Claims the remaining jobs of an AvailableNow query; waits while limits keep them from starting."""
        claimed = claimer.claim(min(most, self._left or 0))
        while self._left and not claimed and (wait_ms := self._wait_ms(claimer)):
            time.sleep(min(wait_ms / 1000, BLOCK_S))
            claimed = claimer.claim(min(most, self._left))
        self._left = (self._left or 0) - claimed
        self._has_warned = False
        return claimed

    def _wait_ms(self, claimer: Claimer) -> int:
        """How long to wait for a limit of the queue or of its groups that keeps jobs from starting; 0: for none."""
        if claimer.limited_ms:
            return claimer.limited_ms if lag_of(self._handle) else 0
        groups_ms = limited_groups_ms(self._handle) if self._group is not None and self._group.max else 0
        return self._full_ms(claimer) or groups_ms

    def _full_ms(self, claimer: Claimer) -> int:
        """How long to wait until other workers may hold less of the queue's concurrency.

        0 if all active jobs belong to the query: it settles none of them while it waits.
        """
        concurrency, waiting = describe(self._handle).concurrency, lag_of(self._handle)
        active = counts(self._handle)["active"]
        if concurrency is None or active < concurrency or not waiting:
            return 0
        if active <= claimer.held():
            log.warning(
                "queue %s: the query ends though jobs are left (%d wait), as jobs that it has claimed and not settled "
                "take the concurrency of the queue (%d)",
                self._handle.keys.queue,
                waiting,
                concurrency,
            )
            return 0
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "queue %s: the query waits for other workers, whose jobs take the concurrency of the queue (%d), "
                "before it claims more jobs (%d wait)",
                self._handle.keys.queue,
                concurrency,
                waiting,
            )
        return FULL_MS

    def _claimer_of(self, reader: str) -> Claimer:
        if self._claimer is None or self._claimer.ledger.reader != reader:
            work_settings = WorkSettings(
                reader,
                self._lock_ms,
                self._worker or default_worker(reader),
                self._limiter,
                counters=self._handle.keys.settled(reader),
                group=self._group,
            )
            self._claimer = Claimer(ClaimLedger(self._handle, reader), work_settings, self._chunk_size)
        return self._claimer

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        # After a restart, initialOffset has a new reader name: the one in the end offset comes from the offset log.
        (last, reader), (first, _) = self._read(end), self._read(start)
        claimer = self._claimer_of(reader)
        self._ask(lambda: claimer.take_up(first, last))
        self._batch = last - first, monotonic_s()
        portions = claimer.portions(first, last)
        tasks = max(1, -(-(last - first) // self._rows))
        if not portions:
            rows = max(1, -(-(last - first) // tasks))
            return [ClaimRange(reader, start, min(start + rows, last)) for start in range(first, last, rows)]
        # A batch that waits for more jobs holds none of them meanwhile.
        is_ahead = not (self._may_end or self._is_patient)
        if last >= self._end and claimer.has_more and self._left is None and is_ahead:
            claimer.claim_ahead(self._size.current, self._size.enough)
        self._may_end = False
        # In turns: to remove jobs from `active` is cheap near its tail, where the oldest ones are.
        return [ClaimRange(reader, first, last, dealt) for i in range(tasks) if (dealt := portions[i::tasks])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ClaimRange)
        begin_task()
        for portion in partition.portions:
            yield self._started(portion.token, unpack_claimed(portion.packed))
        if not partition.portions:
            ledger = ClaimLedger(self._handle, partition.reader)
            for token, ids in self._ask(lambda: ledger.claims(partition.start, partition.stop)):
                for start in range(0, len(ids), CHUNK_SIZE):
                    chunk = self._ask(partial(read_chunk, self._handle, ids[start : start + CHUNK_SIZE]))
                    yield self._started(token, chunk)

    def _started(self, token: str, chunk: ClaimedChunk) -> pa.RecordBatch:
        """The jobs of a claim that have not expired since."""
        started = self._ask(lambda: start_chunk(self._handle, token, chunk))
        return claim_batch(self._handle, token, started, self._schema)

    def _ask(self, ask: Callable[[], T]) -> T:
        """The result of a call to Redis, retried until it succeeds: an error would end the query.

        Raises QueueDamaged in an AvailableNow query, which nobody watches for as long as a repair takes.
        """
        warn = partial(log.warning, "queue %s: a claiming query %s (%s)", self._handle.keys.queue)
        return retry_until_connected(ask, warn, until_repaired=self._patient)

    def commit(self, end: dict[str, Any]) -> None:
        claimed, reader = self._read(end)
        try:
            ClaimLedger(self._handle, reader).cut(claimed)
        except (ConnectionLost, QueueDamaged) as error:
            log.info("queue %s: committed jobs are removed from the ledger later: %s", self._handle.keys.queue, error)

    def reportLatestOffset(self) -> dict[str, Any]:
        """The latest offset for the progress of the query: the jobs claimed, and those that wait."""
        reader = self._reader if self._claimer is None else self._claimer.ledger.reader
        try:
            self._newest = ClaimLedger(self._handle, reader).end() + lag_of(self._handle)
        except (ConnectionLost, QueueDamaged) as error:
            log.info("queue %s: can't count the waiting jobs: %s", self._handle.keys.queue, error)
        return {"claimed": self._newest, "reader": reader}
