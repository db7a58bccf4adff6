"""Converts chunks of results to Arrow batches, column by column; a value shared by all jobs is converted once."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from spark_bull.columns import listed
from spark_bull.dialects.fields import FIELDS
from spark_bull.errors import ResultsLost
from spark_bull.queue.result_rows import ResultChunk
from spark_bull.spark.job_columns import column_of, texts

log = logging.getLogger("spark_bull")


def fields_of(columns: Sequence[str]) -> list[str]:
    """Returns the fields of job hashes that these columns need."""
    return [name for column in columns if column in FIELDS for name in FIELDS[column].names]


def result_batch(
    queue: str, chunk: ResultChunk, columns: Sequence[str], schema: pa.Schema, *, strict: bool
) -> pa.RecordBatch:
    """Converts a chunk of results to a batch of this schema.

    strict: whether to raise ResultsLost for jobs that were removed since they were discovered. Otherwise their rows
    have the fields that are in the ledger.
    """
    _check_missing(queue, chunk, strict=strict)
    arrays = [_column(queue, chunk, name, field.type) for name, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _check_missing(queue: str, chunk: ResultChunk, *, strict: bool) -> None:
    presence = listed(chunk.columns["there"], chunk.rows)
    if b"missing" not in presence:
        return
    missing = [
        job_id.decode("utf-8", "replace")
        for job_id, state in zip(listed(chunk.columns["id"], chunk.rows), presence, strict=True)
        if state == b"missing"
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


def _column(queue: str, chunk: ResultChunk, name: str, kind: pa.DataType) -> pa.Array:
    if name == "queue":
        return pa.repeat(pa.scalar(queue, kind), chunk.rows)
    if name == "runAt":
        return pa.nulls(chunk.rows, kind)
    raws = _raws(chunk, [name] if name in ("id", "state") else FIELDS[name].names)
    is_shared = len(raws) != chunk.rows
    column = texts(raws, kind) if name in ("id", "state") else column_of(name, raws, kind)
    return column.take(np.zeros(chunk.rows, np.int64)) if is_shared else column


def _raws(chunk: ResultChunk, names: Sequence[str]) -> list[Any]:
    """Returns the raw values of a column: the first of these fields that a job has; one value if all jobs share it."""
    first, *others = (chunk.columns[name] for name in names)
    for other in others:
        if isinstance(first, list):
            first = [b if a is None else a for a, b in zip(first, listed(other, chunk.rows), strict=True)]
        elif first is None:
            first = other
    return listed(first, 1)
