"""Claimed jobs as Arrow batches, column by column: what all jobs of a chunk have in common is written once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from spark_bull.columns import converted, listed
from spark_bull.queue.claimed_fields import are_there, claimed_columns
from spark_bull.queue.handle import QueueHandle
from spark_bull.spark.process.tickets import Tickets
from spark_bull.spark.schemas import CLAIM_SCHEMA

_ARROW: Final = to_arrow_schema(CLAIM_SCHEMA, timezone="UTC")
_SOURCES: Final[Mapping[str, str]] = {
    "name": "name",
    "data": "data",
    "opts": "opts",
    "timestamp": "timestamp",
    "attemptsMade": "attempts_made",
    "attemptsStarted": "attempts_started",
    "stalledCounter": "stalled_counter",
    "priority": "priority",
    "progress": "progress",
    "parentKey": "parent_key",
    "deferredFailure": "deferred_failure",
}


def claim_batch(
    handle: QueueHandle, token: str, position: int, ids: Sequence[str], columns: Sequence[Any]
) -> pa.RecordBatch:
    """Jobs as a batch of CLAIM_SCHEMA.

    position: of the first one in the ledger of claims. columns: as a claim gives them; what is gone is left out.
    """
    made = claimed_columns(handle.dialect, ids, columns)
    count = len(ids)
    arrays = {name: _array(made[source], _ARROW.field(name).type, count) for name, source in _SOURCES.items()}
    arrays["queue"] = pa.repeat(pa.scalar(handle.keys.queue), count)
    arrays["id"] = pa.array(ids, pa.string())
    arrays["token"] = pa.array(listed(converted(made["opts"], Tickets(token, position).of), count), pa.string())
    batch = pa.RecordBatch.from_arrays([arrays[field.name] for field in _ARROW], schema=_ARROW)
    there = are_there(columns, count)
    return batch if all(there) else batch.filter(pa.array(there))


def _array(column: Any, kind: pa.DataType, count: int) -> pa.Array:
    convert = _converter(kind)
    if not isinstance(column, list):
        return pa.repeat(pa.scalar(convert(column), _stored(kind)), count).view(kind)
    return pa.array([convert(value) for value in column], _stored(kind)).view(kind)


def _stored(kind: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def _converter(kind: pa.DataType) -> Callable[[Any], Any]:
    """Spark's times count microseconds; 0 is none."""
    if pa.types.is_timestamp(kind):
        return lambda ms: ms * 1000 if ms else None
    return lambda value: value
