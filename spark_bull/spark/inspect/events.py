"""Reads events as Arrow batches, for batch and streaming reads with view=events."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from spark_bull.core.dialects.fields import JSON_COLUMNS, NO_VALUE, integer_of, text_of
from spark_bull.core.errors import ResultsLost
from spark_bull.core.queue.events.event_log import Entry, Position, read_page
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.spark.json.job_columns import texts, well_formed_texts

log = logging.getLogger("spark_bull")

#: Approximate number of events per Arrow batch.
BATCH_EVENTS: Final = 8_000
#: Columns that are texts of fields with the same name.
_TEXTS: Final = ("event", "jobId", "prev", "data", "returnvalue", "failedReason")
_COLUMNS: Final = frozenset(name.encode() for name in (*_TEXTS, "delay"))


def event_batches(
    handle: QueueHandle,
    after: Position,
    stop: str,
    columns: Sequence[str],
    schema: pa.Schema,
    *,
    size: int,
    strict: bool,
) -> Iterator[pa.RecordBatch]:
    """The events after a position, up to an id. size: events per call.

    strict: whether to raise ResultsLost if events of the range were removed before they were read; otherwise a warning
    is logged.
    """
    gathered: list[Entry] = []
    expected = ""
    while True:
        # One more than needed: its id is expected at the beginning of the next page.
        page = read_page(handle, after, stop, size + 1, expected)
        if page.lost:
            _events_lost(handle.keys.queue, after.id, page.lost == 1, strict=strict)
            after = after._replace(taken=None)
        gathered += page.entries[:size]
        over = len(page.entries) <= size
        if gathered and (over or len(gathered) >= BATCH_EVENTS):
            yield _batch(handle.keys.queue, gathered, columns, schema)
            gathered = []
        if over:
            return
        (last, _), (following, _) = page.entries[-2:]
        after, expected = after.plus(last.decode(), size), following.decode()


def _events_lost(queue: str, after: str, is_certain: bool, *, strict: bool) -> None:
    what = (
        f"queue {queue}: events after {after} {'were' if is_certain else 'may have been'} removed before they were read"
    )
    if strict:
        raise ResultsLost(
            f"{what}, as the stream of events was trimmed: trigger more often, let BullMQ keep more events "
            "(streams.events.maxLen of the Queue), or set failOnDataLoss=false to go on without them"
        )
    log.warning("%s; continuing without them", what)


def _batch(queue: str, entries: Sequence[Entry], columns: Sequence[str], schema: pa.Schema) -> pa.RecordBatch:
    rows = [dict(zip(fields[::2], fields[1::2], strict=True)) for _, fields in entries]
    arrays = [
        _COLUMN[name](queue, entries, rows, field.type) if name in _COLUMN else _texts(name, rows, field.type)
        for name, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


Rows = Sequence[Mapping[bytes, bytes]]


def _texts(name: str, rows: Rows, kind: pa.DataType) -> pa.Array:
    field = name.encode()
    values = [row.get(field) for row in rows]
    if name == "returnvalue":
        values = [None if value in NO_VALUE else value for value in values]
    column = pa.array(values, pa.binary())
    return texts(well_formed_texts(column) if name in JSON_COLUMNS else column, kind)


def _others(row: Mapping[bytes, bytes]) -> list[tuple[str | None, str | None]]:
    return [(text_of(name), text_of(value)) for name, value in row.items() if name not in _COLUMNS]


_COLUMN: Final[Mapping[str, Callable[[str, Sequence[Entry], Rows, pa.DataType], Any]]] = {
    "queue": lambda queue, entries, rows, kind: pa.repeat(pa.scalar(queue, kind), len(rows)),
    "id": lambda queue, entries, rows, kind: texts(pa.array([entry_id for entry_id, _ in entries], pa.binary()), kind),
    "delay": lambda queue, entries, rows, kind: pa.array([integer_of(row.get(b"delay")) for row in rows], kind),
    "timestamp": lambda queue, entries, rows, kind: pa.array(
        [int(entry_id.partition(b"-")[0]) * 1000 for entry_id, _ in entries], kind
    ),
    "fields": lambda queue, entries, rows, kind: pa.array([_others(row) for row in rows], kind),
}
