"""Finished jobs as Arrow batches, column by column: what all jobs of a chunk have in common is written once."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from spark_bull.columns import listed
from spark_bull.dialects.fields import FIELDS
from spark_bull.errors import ResultsLost
from spark_bull.queue.result_ledger import ResultChunk
from spark_bull.spark.job_columns import column_of, texts

log = logging.getLogger("spark_bull")


def fields_of(columns: Sequence[str]) -> list[str]:
    """The fields of jobs' hashes that these columns are made of."""
    return [name for column in columns if column in FIELDS for name in FIELDS[column].names]


def result_batch(
    queue: str, chunk: ResultChunk, columns: Sequence[str], schema: pa.Schema, *, strict: bool
) -> pa.RecordBatch:
    """Results as a batch of exactly this schema.

    `strict`: raises ResultsLost for a job that was there when it was found, and is gone; else its row shows what is
    known.
    """
    _check_there(queue, chunk, strict=strict)
    arrays = [_column(queue, chunk, name, field.type) for name, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _check_there(queue: str, chunk: ResultChunk, *, strict: bool) -> None:
    there = listed(chunk.columns["there"], chunk.rows)
    if b"missing" not in there:
        return
    missing = [
        job_id.decode("utf-8", "replace")
        for job_id, what in zip(listed(chunk.columns["id"], chunk.rows), there, strict=True)
        if what == b"missing"
    ]
    what = f"queue {queue}: {len(missing)} finished jobs were removed before they were read, job {missing[0]} first"
    if strict:
        raise ResultsLost(
            f"{what}: keep them for longer, trigger more often, or set failOnDataLoss=false"
            " to get rows with what is known: id, state, time, and in most cases returnvalue or failedReason"
        )
    log.warning("%s; their rows hold what is known", what)


def _column(queue: str, chunk: ResultChunk, name: str, kind: pa.DataType) -> pa.Array:
    if name == "queue":
        return pa.repeat(pa.scalar(queue, kind), chunk.rows)
    if name == "runAt":
        return pa.nulls(chunk.rows, kind)
    raws = _raws(chunk, [name] if name in ("id", "state") else FIELDS[name].names)
    same = len(raws) != chunk.rows
    column = texts(raws, kind) if name in ("id", "state") else column_of(name, raws, kind)
    return column.take(np.zeros(chunk.rows, np.int64)) if same else column


def _raws(chunk: ResultChunk, names: Sequence[str]) -> list[Any]:
    """The raw values of a column, of the first of these fields that a job has; only one if all jobs have the same."""
    first, *others = (chunk.columns[name] for name in names)
    for other in others:
        if isinstance(first, list):
            first = [b if a is False else a for a, b in zip(first, listed(other, chunk.rows), strict=True)]
        elif first is False:
            first = other
    return [None if value is False else value for value in listed(first, 1)]
