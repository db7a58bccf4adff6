"""Runs a UDF as a transformation of claimed jobs: the value that it returns for each job, or the error it raises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from spark_bull.core.model.jobs import RawJson
from spark_bull.core.model.outcomes import ClaimedJob
from spark_bull.core.payloads.policy import PLAIN
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.run.job.interrupts import recording_interrupts
from spark_bull.run.job.outcome_policy import MAX_RETURNVALUE, NoReturnValue, returnvalue_text
from spark_bull.run.job.running_job import RunningJob
from spark_bull.spark.platform.arrow import to_arrow_schema
from spark_bull.spark.schemas import table_of
from spark_bull.spark.work.frame_runner import ERROR_SCHEMA, error_columns
from spark_bull.spark.work.udf_runner import UdfResults, UdfRunner

#: Columns of claimed jobs that it reads.
INPUT: Final = ("id", "token", "data")
#: Schema of its rows, which mode=settle takes.
OUTPUT: Final = StructType([*table_of("id string, token string, returnvalue string"), *ERROR_SCHEMA])
_ARROW: Final = to_arrow_schema(OUTPUT)


@dataclass(frozen=True)
class UdfTransformation:
    """Makes outcomes of batches of claimed jobs (INPUT). Picklable."""

    handle: QueueHandle
    runner: UdfRunner

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with recording_interrupts():
            yield from _batches(self, batches)


def _batches(transformation: UdfTransformation, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        called = transformation.runner.of_column(batch.column("data").cast(pa.string()))
        yield _one_by_one(transformation, batch) if called is None else _together(transformation, batch, called)


def _together(transformation: UdfTransformation, claimed: pa.RecordBatch, called: UdfResults) -> pa.RecordBatch:
    texts = called.texts
    longest = pc.max(pc.utf8_length(texts)).as_py() or 0
    if called.errors or longest > MAX_RETURNVALUE:
        values = [None if text is None else RawJson(text) for text in texts.to_pylist()]
        return _batch(
            claimed,
            [_outcome(transformation.handle, value, called.errors.get(row)) for row, value in enumerate(values)],
        )
    if unwritten := transformation.handle.dialect.unwritten_results:
        texts = pc.if_else(pc.is_in(texts, pa.array(unwritten, pa.string())), None, texts)
    return _batch_of(claimed, {"returnvalue": texts})


def _one_by_one(transformation: UdfTransformation, claimed: pa.RecordBatch) -> pa.RecordBatch:
    # The payloads in a DataFrame have been opened.
    opened = replace(transformation.handle, payloads=PLAIN)
    ids, texts = (claimed.column(name).to_pylist() for name in ("id", "data"))
    jobs = [RunningJob(ClaimedJob(job_id, data=text), opened) for job_id, text in zip(ids, texts, strict=True)]
    outcomes = {
        result.job: _outcome(transformation.handle, result.value, result.error)
        for results in transformation.runner(jobs, ())
        for result in results
    }
    return _batch(claimed, [outcomes[job] for job in jobs])


def _batch(claimed: pa.RecordBatch, outcomes: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """The outcomes of claimed jobs as a batch of OUTPUT."""
    names = set().union(*outcomes)
    return _batch_of(
        claimed,
        {
            field.name: pa.array([outcome.get(field.name) for outcome in outcomes], field.type)
            for field in _ARROW
            if field.name in names
        },
    )


def _batch_of(claimed: pa.RecordBatch, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """A batch of OUTPUT for claimed jobs; other columns are null."""
    given = {**columns, **{name: claimed.column(name).cast(pa.string()) for name in ("id", "token")}}
    arrays = [given[field.name] if field.name in given else pa.nulls(claimed.num_rows, field.type) for field in _ARROW]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def _outcome(handle: QueueHandle, value: Any, error: BaseException | None) -> dict[str, Any]:
    if error is None:
        try:
            # NULL is the JSON text `null`; the empty text, for a value that the dialect does not store, is no JSON.
            return {"returnvalue": returnvalue_text(handle.dialect, value) or None}
        except NoReturnValue as no_value:
            error = no_value
    return error_columns(error)
