"""Streaming reads of events (BullMQ): an offset is the id of the last event taken per queue; tasks read ranges."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from spark_bull.core.error_text import short_errors
from spark_bull.core.errors import ConnectionLost, OptionError, QueueDamaged, ResultsLost
from spark_bull.core.options.parse import parse_options
from spark_bull.core.options.table import EventsOptions
from spark_bull.core.options.values import EARLIEST, LATEST
from spark_bull.core.queue.events.event_log import BEGIN, Position, count_of, end_of, position_of, span_of, steps
from spark_bull.core.queue.handle.handle import QueueHandle, open_handle
from spark_bull.core.queue.monitor.find import is_glob
from spark_bull.core.queue.shards.layout import selection_of
from spark_bull.core.store.connection import Connection
from spark_bull.run.claims.waits import DamagedQueues
from spark_bull.run.services.admission import Admission
from spark_bull.run.services.service import QueueSet
from spark_bull.spark.inspect.events import event_batches
from spark_bull.spark.platform.arrow import to_arrow_schema
from spark_bull.spark.platform.datasource import FirstBatch, LimitedReader, ReadLimit, begin_task, read_offset
from spark_bull.spark.schemas import QUEUE_REQUIRED, columns_of

log = logging.getLogger("spark_bull")

#: The highest sequence number of an id.
_LAST_OF_MS: Final = 2**64 - 1


class Events(InputPartition):
    """The events of a queue after a position, up to an id."""

    def __init__(self, queue: str, after: Position, stop: str) -> None:
        super().__init__((queue, *after, stop))
        self.queue = queue
        self.after = after
        self.stop = stop


def event_reader(raw: Mapping[str, str], schema: StructType) -> EventStreamReader:
    """Creates the reader of `readStream` with view=events. Raises OptionError, DialectError or ConnectionLost."""
    options = parse_options(raw, EventsOptions)
    if not options.queue:
        raise OptionError(QUEUE_REQUIRED)
    columns = columns_of(schema, "events")
    names = selection_of(options)
    named = [name for name in names if not is_glob(name)]
    Connection(options.redis).check(options.prefix, named, write=False)
    for name in named:
        open_handle(options, name).dialect.require("event-stream", "view=events")
    return EventStreamReader(options, schema, tuple(columns), names)


@short_errors
class EventStreamReader(LimitedReader):
    """Offsets are {"queues": {queue: position}, "began": the same where the query began}.

    Spark asks for the initial offset again when batch 0 is repeated, and does not store it: `began` does.
    """

    def __init__(self, options: EventsOptions, schema: StructType, columns: tuple[str, ...], names: list[str]) -> None:
        self._options = options
        self.most = options.max_events_per_trigger
        self.has_limit = not options.given.isdisjoint({"maxEventsPerTrigger", "maxBytesPerTrigger"})
        self._admission = Admission(
            options.min_events_per_trigger, options.max_trigger_delay_ms, options.max_bytes_per_trigger
        )
        self._schema = schema
        self._columns = columns
        self._names = names
        self._queues: QueueSet | None = None
        self._targets: dict[str, Position] | None = None
        self._damaged = DamagedQueues()

    def _handles(self) -> list[QueueHandle]:
        if self._queues is None:
            self._queues = QueueSet(self._options, self._names)
        return [handle for handle in self._queues.handles() if handle.dialect.has("event-stream")]

    def initialOffset(self) -> dict[str, Any]:
        began = {handle.keys.queue: self._start_of(handle) for handle in self._handles()}
        return _offset(began, began)

    def _start_of(self, handle: QueueHandle) -> Position:
        starting, span = self._options.starting_offsets, span_of(handle)
        if starting in (EARLIEST, LATEST):
            return span.last if starting == LATEST else span.before
        start = Position(f"{int(starting) - 1}-{_LAST_OF_MS}", None)
        return span.before if start.is_before(span.before) else start

    def prepareForTriggerAvailableNow(self) -> None:
        self._targets = {handle.keys.queue: span_of(handle).last for handle in self._handles()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        most = getattr(limit, "max_rows", None)
        taken, began = _read(start)
        # AvailableNow would end the query.
        may_end = self._targets is not None or isinstance(limit, FirstBatch)
        try:
            handles = {handle.keys.queue: handle for handle in self._handles()}
            share = None if most is None else max(1, most // max(1, len(handles)))
            spans, rows = dict[str, tuple[Position, Position]](), 0
            for queue, handle in handles.items():
                look = partial(self._look, handle, taken.get(queue, BEGIN), share)
                found = look() if may_end else self._damaged.attempt(handle.keys, "look for events", look)
                if found is not None:
                    spans[queue], count = found
                    rows += count
            ends = {queue: stop for queue, (_, stop) in spans.items()}
            if most is not None:
                if not may_end and self._admission.waits(rows):
                    return start
                ends = self._admission.cut(spans, lambda queue, *span: end_of(handles[queue], *span))
            return _offset(taken | ends, began)
        except ConnectionLost as error:
            if may_end:
                raise
            log.warning("queue %s: could not look for events, retrying: %s", self._options.queue, error)
            return start

    def _look(self, handle: QueueHandle, after: Position, most: int | None) -> tuple[tuple[Position, Position], int]:
        """The positions of the next batch, of up to `most` events, and the number of all events after the last batch.

        These are also the events that are lost already: to wait for more than the stream keeps would lose more.
        """
        span, enough = span_of(handle), self._admission.least
        if span.length and span.last.is_before(after):
            self._ends_earlier(handle.keys.queue, after, span.last)
            return (after, span.before), enough
        stop = span.last if self._targets is None else self._targets.get(handle.keys.queue, after)
        if not after.is_before(stop):
            return (after, after), 0
        first = span.without_lost(after)
        # A stream that was deleted counts its events from 0 again.
        count = max(count_of(handle, begin, stop, enough) for begin in {after, first})
        if most is not None and span.length > most:
            stop = next(steps(handle, first, stop, most))
        return (first, stop), count

    def _ends_earlier(self, queue: str, after: Position, last: Position) -> None:
        """Raises ResultsLost, or logs it, for a stream that ends before an event that the query has read.

        New events may have ids of those that are lost, if the clock of the new primary is behind.
        """
        what = f"queue {queue}: its events end at {last.id}, before {after.id}, which the query has read"
        if self._options.fail_on_data_loss:
            raise ResultsLost(
                f"{what}. Redis was restored from an older state, or a replica that lagged has become the primary. "
                "With failOnDataLoss=false the query continues with all events in Redis, and may deliver some again"
            )
        log.warning("%s; continuing with all events in Redis", what)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The last event of each queue for the progress of the query."""
        try:
            return {"queues": {handle.keys.queue: list(span_of(handle).last) for handle in self._handles()}}
        except (ConnectionLost, QueueDamaged) as error:
            log.info("queue %s: could not look for the last event: %s", self._options.queue, error)
            return None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        (begun, began), (taken, first) = _read(start), _read(end)
        begun = begun if began == first else first
        handles = {handle.keys.queue: handle for handle in self._handles()}
        found: list[InputPartition] = []
        for queue, stop in taken.items():
            after = begun.get(queue, BEGIN)
            if after.is_before(stop):
                for last in self._parts(handles.get(queue), after, stop):
                    found.append(Events(queue, after, last.id))
                    after = last
        return found

    def _parts(self, handle: QueueHandle | None, after: Position, stop: Position) -> Iterable[Position]:
        """The ends of the parts that tasks read. handle: None for a queue that does not exist any more."""
        size = self._options.rows_per_partition
        span = None if handle is None else span_of(handle)
        if handle is None or span is None or span.length <= size:
            return [stop]
        return steps(handle, span.without_lost(after), stop, size)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        begin_task()
        assert isinstance(partition, Events)
        options = self._options
        yield from event_batches(
            open_handle(options, partition.queue),
            partition.after,
            partition.stop,
            self._columns,
            to_arrow_schema(self._schema),
            size=options.chunk_size,
            strict=options.fail_on_data_loss,
        )


def _read(offset: Mapping[str, Any]) -> tuple[dict[str, Position], dict[str, Position]]:
    """The positions of the queues, and where the query began. Raises SparkBullError."""
    return read_offset(offset, lambda o: (_positions(o["queues"]), _positions(o["began"])))


def _positions(stored: Mapping[str, Sequence[Any]]) -> dict[str, Position]:
    return {queue: position_of(*position) for queue, position in stored.items()}


def _offset(queues: Mapping[str, Position], began: Mapping[str, Position]) -> dict[str, Any]:
    return {
        name: {queue: list(position) for queue, position in sorted(positions.items())}
        for name, positions in (("queues", queues), ("began", began))
    }
