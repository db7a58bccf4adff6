"""Claimed jobs as Arrow batches, column by column; a value that all jobs of a chunk share is converted once.

The column `token` has the token of the job's lock, which no other claim has. The suffix `#plain` marks a job whose
options do not say how many completed jobs to keep: most jobs are then settled without reading them again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from spark_bull.core.dialects.base import Dialect
from spark_bull.core.dialects.encode.chunks import converted, listed
from spark_bull.core.dialects.fields import CLAIMED_FIELDS, JSON_COLUMNS
from spark_bull.core.errors import PayloadUnreadable
from spark_bull.core.model.outcomes import ClaimedJob
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.work.claim import ClaimedChunk
from spark_bull.core.queue.work.claim_ledger import reader_of
from spark_bull.core.well_formed import well_formed_json
from spark_bull.run.job.job_options import job_options, runs_at_most_once
from spark_bull.run.job.running_job import RunningJob
from spark_bull.spark.platform.arrow import to_arrow_schema
from spark_bull.spark.schemas import CLAIM_FIELDS, CLAIM_SCHEMA

_PLAIN: Final = "#plain"


class SettleToken(NamedTuple):
    """`reader`: the query that has claimed the job. `is_plain`: it can be completed without reading its options."""

    lock_token: str
    reader: str
    is_plain: bool


class SettleTokens:
    """Makes the tokens of jobs claimed under one lock token. Equal options share one."""

    def __init__(self, lock_token: str) -> None:
        self._token = lock_token
        self._by_opts: dict[Any, str] = {}

    def of(self, opts: Any) -> str:
        """The token of a job with these options."""
        if opts not in self._by_opts:
            is_plain = job_options(opts or "{}").keep_completed is ...
            self._by_opts[opts] = f"{self._token}{_PLAIN}" if is_plain else self._token
        return self._by_opts[opts]


def read_settle_token(text: str) -> SettleToken:
    """Parses the column `token`. A text of another form is the token of a lock, and the name of a reader."""
    lock_token = text.removesuffix(_PLAIN)
    reader = reader_of(lock_token)
    return SettleToken(text, text, False) if reader is None else SettleToken(lock_token, reader, lock_token != text)


#: Why a DataFrame has no such job.
NOT_ONCE: Final = (
    "a job that may run at most once can't be in a DataFrame, which Spark may compute again. Process it with a "
    "function of a job, or with a UDF in a worker without functions of DataFrames"
)
_ARROW: Final = to_arrow_schema(CLAIM_SCHEMA)
#: Attributes of ClaimedJob, by column.
_SOURCES: Final[Mapping[str, str]] = {name: CLAIMED_FIELDS[name].claimed for name in CLAIM_FIELDS}
#: Attributes that say how a job is settled, or why it must fail.
_ALWAYS: Final = ("opts", "attempts_made", "data", "deferred_failure")


def claim_batch(
    handle: QueueHandle, lock_token: str, chunk: ClaimedChunk, schema: pa.Schema = _ARROW
) -> pa.RecordBatch:
    """Jobs of one claim as a batch; those that are gone are left out. schema: some columns of CLAIM_SCHEMA, or all."""
    made = _read(chunk, handle.dialect, schema).values(handle.dialect)
    count = len(chunk.ids)
    made["deferred_failure"] = _deferred(made["deferred_failure"], made["opts"], count)
    if not handle.payloads.is_plain:
        made |= _opened(handle, chunk.ids, made)
    arrays = {name: _array(name, made[source], count) for name, source in _SOURCES.items() if name in schema.names}
    arrays["queue"] = pa.repeat(pa.scalar(handle.keys.queue), count)
    arrays["id"] = pa.array(chunk.ids, pa.string())
    arrays["token"] = pa.array(listed(converted(made["opts"], SettleTokens(lock_token).of), count), pa.string())
    batch = pa.RecordBatch.from_arrays([arrays[field.name] for field in schema], schema=schema)
    there = chunk.are_there()
    return batch if all(there) else batch.filter(pa.array(there))


def _read(chunk: ClaimedChunk, dialect: Dialect, schema: pa.Schema) -> ClaimedChunk:
    """The jobs without fields that no column is made of: to convert these would take half of the time."""
    made = {*_ALWAYS, *(source for name, source in _SOURCES.items() if name in schema.names)}
    needed = {field for attribute, field in dialect.claim_fields.items() if attribute in made}
    columns = {field: column if field in needed else False for field, column in chunk.columns.items()}
    return ClaimedChunk(chunk.ids, columns)


def frame_table(jobs: Sequence[RunningJob]) -> pa.Table:
    """Jobs of one claim that a slot runs as a table of CLAIM_SCHEMA."""
    first, count = jobs[0], len(jobs)
    made = dict(zip(ClaimedJob._fields, zip(*(job.claimed for job in jobs), strict=True), strict=True))
    if not first.handle.payloads.is_plain:
        made["data"] = tuple(job.data_text for job in jobs)
    arrays = {name: _array(name, _collapsed(made[source]), count) for name, source in _SOURCES.items()}
    arrays["queue"] = pa.repeat(pa.scalar(first.queue), count)
    arrays["id"] = pa.array(made["id"], pa.string())
    arrays["token"] = pa.repeat(pa.scalar(first.token), count)
    return pa.Table.from_arrays([arrays[field.name] for field in _ARROW], schema=_ARROW)


def _collapsed(values: tuple[Any, ...]) -> Any:
    """The values as a column: one value if all are equal."""
    return values[0] if values.count(values[0]) == len(values) else [*values]


def _opened(handle: QueueHandle, ids: Sequence[str], made: Mapping[str, Any]) -> dict[str, Any]:
    """The payloads, opened, and why the jobs must fail whose payload cannot be opened, which stays as it is.

    Raises PayloadUnreadable if the file system of payloads has failed.
    """
    texts, reasons = (listed(made[name], len(ids)) for name in ("data", "deferred_failure"))
    for place, (job_id, text) in enumerate(zip(ids, texts, strict=True)):
        try:
            texts[place] = text and handle.opened("data", job_id, text)
        except PayloadUnreadable as error:
            if error.may_pass:
                # The reason would be final. Spark runs the task again.
                raise
            reasons[place] = reasons[place] or str(error)
    return {"data": texts, "deferred_failure": reasons}


def _deferred(reasons: Any, opts: Any, count: int) -> Any:
    """Why jobs must fail without being run; also those that must never run twice, as Spark may repeat a batch."""
    refused = converted(opts, lambda text: NOT_ONCE if text and runs_at_most_once(text) else None)
    if not isinstance(refused, list):
        return refused or reasons
    return [own or reason for own, reason in zip(refused, listed(reasons, count), strict=True)]


def _array(name: str, column: Any, count: int) -> pa.Array:
    kind = _ARROW.field(name).type
    convert = _converter(name, kind)
    if not isinstance(column, list):
        return pa.repeat(pa.scalar(convert(column), _stored(kind)), count).view(kind)
    return pa.array([convert(value) for value in column], _stored(kind)).view(kind)


def _stored(kind: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def _converter(name: str, kind: pa.DataType) -> Callable[[Any], Any]:
    """Converts values; times from ms to the microseconds of Spark, 0 to null."""
    if name in JSON_COLUMNS:
        return lambda text: text and well_formed_json(text)
    if pa.types.is_timestamp(kind):
        return lambda ms: ms * 1000 if ms else None
    return lambda value: value
