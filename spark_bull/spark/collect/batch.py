"""Converts chunks of results to Arrow batches, column by column."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, Final

import pyarrow as pa

from spark_bull.core.dialects.fields import FIELDS
from spark_bull.core.errors import ResultsLost
from spark_bull.core.queue.collect.result_rows import ResultChunk
from spark_bull.core.queue.handle.job_fields import raw_column
from spark_bull.spark.json.job_columns import batches_of, raw_batch

log = logging.getLogger("spark_bull")

#: Minimum number of rows per Arrow batch, unless they are large.
BATCH_ROWS: Final = 4_000


def result_batches(
    queue: str, chunks: Iterable[ResultChunk], columns: Sequence[str], schema: pa.Schema, *, strict: bool
) -> Iterator[pa.RecordBatch]:
    """Converts chunks of results to batches of this schema.

    strict: whether to raise ResultsLost for jobs that were removed since they were discovered. Otherwise their rows
    have the fields that are in the ledger.
    """
    return batches_of(_raw_batches(queue, chunks, columns, strict=strict), schema, repeat(BATCH_ROWS))


def _raw_batches(
    queue: str, chunks: Iterable[ResultChunk], columns: Sequence[str], *, strict: bool
) -> Iterator[pa.RecordBatch]:
    for chunk in chunks:
        _check_missing(queue, chunk, strict=strict)
        known: dict[str, Any] = {"queue": [queue] * chunk.rows, "runAt": [None] * chunk.rows, **chunk.columns}
        yield raw_batch({name: raw_column(known, name) if name in FIELDS else known[name] for name in columns})


def _check_missing(queue: str, chunk: ResultChunk, *, strict: bool) -> None:
    presence = chunk.columns["there"]
    if b"missing" not in presence:
        return
    missing = [
        job_id.decode("utf-8", "replace")
        for job_id, state in zip(chunk.columns["id"], presence, strict=True)
        if job_id is not None and state == b"missing"
    ]
    what = (
        f"queue {queue}: {len(missing)} finished jobs were removed before they were read, the first is job {missing[0]}"
    )
    if strict:
        raise ResultsLost(
            f"{what}: keep finished jobs longer, trigger more often, or set failOnDataLoss=false"
            " to get rows with the known fields: id, state, time, and in most cases returnvalue or failedReason"
        )
    log.warning("%s; their rows have the known fields only", what)
