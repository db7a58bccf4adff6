"""Streaming reads of results: completed and failed jobs of any worker, as micro-batches.

latestOffset() runs in one process that lives as long as the query. It discovers finished jobs and numbers them in a
ledger in Redis. An offset is the number of results taken per queue, so a repeated batch has the same jobs, also after a
restart. read() runs in tasks, which read the jobs. A third process creates a reader only to send it to the tasks. So
what needs redis-py is imported where it is used, and a reader checks its servers with its first offset.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from spark_bull.core.dialects.events import ENDS
from spark_bull.core.error_text import short_errors
from spark_bull.core.errors import ConnectionLost, OptionError, QueueDamaged
from spark_bull.core.options.parse import parse_options
from spark_bull.core.options.table import CollectOptions
from spark_bull.core.options.values import LATEST
from spark_bull.spark.json.types import INFER, TYPED_COLUMNS, is_inferred
from spark_bull.spark.platform.datasource import (
    FirstBatch,
    LimitedReader,
    ReadLimit,
    begin_task,
    check_reader,
    read_offset,
)
from spark_bull.spark.schemas import QUEUE_REQUIRED, columns_of

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_bull.core.queue.collect.verbs import Horizon
    from spark_bull.run.services.collector import Collector

log = logging.getLogger("spark_bull")

#: Number of jobs from which a micro-batch has two tasks, so that two cores read it.
TWO_TASKS_FROM: Final = 50_000
ROWS_PER_TASK: Final = 150_000


class ResultRange(InputPartition):
    """Positions start to stop (exclusive) of a queue's ledger."""

    def __init__(self, queue: str, reader: str, start: int, stop: int) -> None:
        super().__init__((queue, reader, start, stop))
        self.queue = queue
        self.reader = reader
        self.start = start
        self.stop = stop


def collect_options(raw: Mapping[str, str]) -> CollectOptions:
    """Parses the options of a collecting read. Raises OptionError for an invalid option, and if `queue` is missing."""
    options = parse_options(raw, CollectOptions)
    if not options.queue:
        raise OptionError(QUEUE_REQUIRED)
    for state in options.states:
        if state not in ENDS:
            raise OptionError(
                f"expected `states` of a stream to be some of {', '.join(ENDS)}, got: {state!r}; use "
                'spark.read.format("bull") for jobs in other states'
            )
    for name in TYPED_COLUMNS.values():
        if is_inferred(options.value(name)):
            raise OptionError(
                f"expected `{name}` of a stream to be DDL, got {INFER!r}: the schema of a stream must stay the same"
            )
    if options.write_id is not None and options.min_jobs_per_trigger > 1:
        raise OptionError("expected no `minJobsPerTrigger` with `writeId`, as jobs of other writes count: leave it out")
    if options.starting_offsets == LATEST and not options.reader_id:
        raise OptionError(
            "startingOffsets=latest requires the option `readerId`, a unique name of this query: the start position "
            "is stored under it, because Spark requests the initial offset more than once"
        )
    return options


def result_reader(raw: Mapping[str, str], schema: StructType) -> ResultReader:
    """Creates the reader of `readStream.format("bull")`. Raises OptionError."""
    return ResultReader(collect_options(raw), schema, tuple(columns_of(schema, "jobs")))


@short_errors
class ResultReader(LimitedReader):
    """Offsets are {"queues": {queue: number of results taken}, "reader": name of the ledgers}."""

    def __init__(self, options: CollectOptions, schema: StructType, columns: tuple[str, ...]) -> None:
        self._options = options
        self.most = options.max_jobs_per_trigger
        self.has_limit = not options.given.isdisjoint({"maxJobsPerTrigger", "maxBytesPerTrigger"})
        self._schema = schema
        self._columns = columns
        self._reader = options.reader_id or uuid4().hex[:16]
        self._horizons: dict[str, Horizon] | None = None
        self._is_checked = False
        self._current: Collector | None = None

    def _read(self, offset: Mapping[str, Any]) -> tuple[dict[str, int], str]:
        """The number of results taken per queue, and the reader. Raises SparkBullError."""
        queues, reader = read_offset(
            offset, lambda o: ({queue: int(taken) for queue, taken in o["queues"].items()}, str(o["reader"]))
        )
        check_reader(self._options.reader_id, reader)
        return queues, reader

    def _collector(self, reader: str) -> Collector:
        """Checks the servers first. Raises OptionError, DialectError or ConnectionLost if they cannot be used."""
        # After a restart, offsets have the reader of the checkpoint.
        if self._current is None or self._reader != reader:
            from spark_bull.run.services.collector import Collector, check_servers

            if not self._is_checked:
                check_servers(self._options)
                self._is_checked = True
            self._current = Collector(self._options, reader, self._horizons, self._columns)
            self._reader = reader
        return self._current

    def initialOffset(self) -> dict[str, Any]:
        return _offset(self._collector(self._reader).first_positions(), self._reader)

    def prepareForTriggerAvailableNow(self) -> None:
        self._horizons, self._current = self._collector(self._reader).horizons(), None

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Discovers finished jobs. Everything before `start` is committed: Spark plans one batch at a time."""
        taken, reader = self._read(start)
        max_jobs, collector = getattr(limit, "max_rows", None), self._collector(reader)
        may_end = self._horizons is not None or isinstance(limit, FirstBatch)
        try:
            return _offset(collector.advance(taken, max_jobs, may_end=may_end), reader)
        except ConnectionLost as error:
            if may_end:
                raise
            log.warning("queue %s: could not discover finished jobs, retrying: %s", self._options.queue, error)
            return start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        # After a restart, initialOffset() of batch 0 has a new reader; its end offset is in the checkpoint.
        (taken, reader), (begun, _) = self._read(end), self._read(start)
        # Uncommitted entries are kept, so the first batch of a queue starts at the beginning of its ledger.
        firsts = self._collector(reader).first_positions() if taken.keys() - begun.keys() else {}
        spans = {queue: (begun.get(queue, firsts.get(queue, 0)), stop) for queue, stop in taken.items()}
        rows = sum(stop - first for first, stop in spans.values())
        most = self._options.rows_per_partition
        fewest = 2 if most is None and rows >= TWO_TASKS_FROM else 1
        size = max(1, -(-rows // max(-(-rows // (most or ROWS_PER_TASK)), fewest)))
        self._collector(reader).discover_ahead(taken, self._options.max_jobs_per_trigger)
        return [
            ResultRange(queue, reader, position, min(position + size, stop))
            for queue, (first, stop) in spans.items()
            for position in range(first, stop, size)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Imported before begin_task(), which excludes what is loaded from collections of garbage.
        from spark_bull.core.queue.collect.result_ledger import ResultLedger
        from spark_bull.core.queue.handle.handle import open_handle
        from spark_bull.spark.collect.batch import result_batches

        assert isinstance(partition, ResultRange)
        begin_task()
        ledger = ResultLedger(open_handle(self._options, partition.queue), partition.reader)
        span = range(partition.start, partition.stop)
        yield from result_batches(ledger, span, self._options, self._columns, self._schema)

    def commit(self, end: dict[str, Any]) -> None:
        taken, reader = self._read(end)
        try:
            self._collector(reader).release(taken)
        except ConnectionLost as error:
            log.info(
                "queue %s: could not release committed results, retrying with the next batch: %s",
                self._options.queue,
                error,
            )

    def reportLatestOffset(self) -> dict[str, Any]:
        """Returns the latest offset for the query's progress, including an estimate of undiscovered jobs."""
        collector = self._collector(self._reader)
        try:
            return _offset(collector.newest(), self._reader)
        except (ConnectionLost, QueueDamaged):
            return _offset(collector.found(), self._reader)


def _offset(positions: Mapping[str, int], reader: str) -> dict[str, Any]:
    return {"queues": dict(sorted(positions.items())), "reader": reader}
