"""Converts chunks of results to Arrow batches, column by column."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

import pyarrow as pa

from spark_bull.dialects.fields import FIELDS
from spark_bull.errors import ResultsLost
from spark_bull.queue.job_fields import raw_column
from spark_bull.queue.result_rows import ResultChunk
from spark_bull.spark.job_columns import BATCH_CHUNKS, column_of, texts

log = logging.getLogger("spark_bull")

#: Approximate number of rows per Arrow batch.
BATCH_ROWS: Final = 4_000


def fields_of(columns: Sequence[str]) -> list[str]:
    """Returns the fields of job hashes that these columns need."""
    return [name for column in columns if column in FIELDS for name in FIELDS[column].names]


def result_batches(
    queue: str, chunks: Iterable[ResultChunk], columns: Sequence[str], schema: pa.Schema, *, strict: bool
) -> Iterator[pa.RecordBatch]:
    """Converts chunks of results to batches of this schema.

    strict: whether to raise ResultsLost for jobs that were removed since they were discovered. Otherwise their rows
    have the fields that are in the ledger.
    """
    for gathered in _gathered(chunks):
        for chunk in gathered:
            _check_missing(queue, chunk, strict=strict)
        arrays = [_column(queue, gathered, name, field.type) for name, field in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _gathered(chunks: Iterable[ResultChunk]) -> Iterator[list[ResultChunk]]:
    """Groups chunks: a conversion has costs that do not depend on the number of rows."""
    gathered: list[ResultChunk] = []
    for chunk in chunks:
        gathered.append(chunk)
        if len(gathered) == BATCH_CHUNKS or sum(one.rows for one in gathered) >= BATCH_ROWS:
            yield gathered
            gathered = []
    if gathered:
        yield gathered


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


def _column(queue: str, chunks: Sequence[ResultChunk], name: str, kind: pa.DataType) -> pa.Array:
    rows = sum(chunk.rows for chunk in chunks)
    if name == "queue":
        return pa.repeat(pa.scalar(queue, kind), rows)
    if name == "runAt":
        return pa.nulls(rows, kind)
    if name in ("id", "state"):
        return texts(list(chain.from_iterable(chunk.columns[name] for chunk in chunks)), kind)
    return column_of(name, list(chain.from_iterable(raw_column(chunk.columns, name) for chunk in chunks)), kind)
