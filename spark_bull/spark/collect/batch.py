"""Reads ranges of results in tasks, and converts them to Arrow batches, column by column."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import StructType

from spark_bull.core.dialects.fields import FIELDS, fields_of
from spark_bull.core.errors import ResultsLost
from spark_bull.core.options.table import CollectOptions
from spark_bull.core.queue.collect.result_ledger import ResultLedger
from spark_bull.core.queue.collect.result_rows import ResultChunk
from spark_bull.core.queue.dispatch.written import WrittenIds
from spark_bull.core.queue.handle.job_fields import raw_column
from spark_bull.spark.json.job_columns import batches_of, raw_batch
from spark_bull.spark.platform.arrow import to_arrow_schema

log = logging.getLogger("spark_bull")

#: Minimum number of rows per Arrow batch, unless they are large.
BATCH_ROWS: Final = 4_000


def result_batches(
    ledger: ResultLedger, span: range, options: CollectOptions, columns: Sequence[str], schema: StructType
) -> Iterator[pa.RecordBatch]:
    """Reads the results at these positions as batches of these columns.

    With `failOnDataLoss`, raises ResultsLost for entries that are missing, and for jobs that were removed since they
    were discovered. Otherwise the rows of these jobs have the fields that are in the ledger.
    """
    queue = ledger.handle.keys.queue
    raw = (_raw_batch(queue, chunk, columns) for chunk in _chunks(ledger, span, options, fields_of(columns)))
    return batches_of(raw, to_arrow_schema(schema), repeat(BATCH_ROWS))


def _raw_batch(queue: str, chunk: ResultChunk, columns: Sequence[str]) -> pa.RecordBatch:
    known: dict[str, Any] = {"queue": [queue] * chunk.rows, "runAt": [None] * chunk.rows, **chunk.columns}
    return raw_batch({name: raw_column(known, name) if name in FIELDS else known[name] for name in columns})


def _chunks(ledger: ResultLedger, span: range, options: CollectOptions, fields: list[str]) -> Iterator[ResultChunk]:
    queue, strict = ledger.handle.keys.queue, options.fail_on_data_loss
    rows = ledger.rows(fields, options.chunk_size)
    ids = None if options.write_id is None else WrittenIds(ledger.handle, options.write_id)
    position = span.start
    while position < span.stop:
        behind, chunk = rows.read(position, span.stop)
        if chunk.rows:
            chunk = chunk if ids is None else chunk.only(ids.has)
            _check_jobs(queue, chunk, strict=strict)
            yield chunk
        else:
            behind = span.stop if behind <= position else min(behind, span.stop)
            _lost(
                f"queue {queue}: results {position:,} to {behind - 1:,} of reader `{ledger.reader}` are missing",
                "the ledger expired (after a week without the query), Redis was flushed, or another checkpoint "
                "committed them; with failOnDataLoss=false the query continues without them",
                "continuing without them",
                strict=strict,
            )
        position = behind


def _check_jobs(queue: str, chunk: ResultChunk, *, strict: bool) -> None:
    """Tells of jobs that were removed since they were discovered."""
    presence = chunk.columns["there"]
    if b"missing" not in presence:
        return
    missing = [
        job_id.decode("utf-8", "replace")
        for job_id, state in zip(chunk.columns["id"], presence, strict=True)
        if job_id is not None and state == b"missing"
    ]
    _lost(
        f"queue {queue}: {len(missing)} finished jobs were removed before they were read, the first is job "
        f"{missing[0]}",
        "keep finished jobs longer, trigger more often, or set failOnDataLoss=false to get rows with the known fields: "
        "id, state, time, and in most cases returnvalue or failedReason",
        "their rows have the known fields only",
        strict=strict,
    )


def _lost(what: str, advice: str, goes_on: str, *, strict: bool) -> None:
    """Raises ResultsLost if strict, else logs what is lost."""
    if strict:
        raise ResultsLost(f"{what}: {advice}")
    log.warning("%s; %s", what, goes_on)
