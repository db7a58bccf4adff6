"""Runs a UDF as a transformation of claimed jobs: the value that it returns for each job, or the error it raises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from spark_bull.model.outcomes import ClaimedJob
from spark_bull.payloads.policy import PLAIN
from spark_bull.queue.core.handle import QueueHandle
from spark_bull.spark.platform.arrow import to_arrow_schema
from spark_bull.spark.process.error_columns import ERROR_SCHEMA, error_columns
from spark_bull.spark.process.udf_runner import UdfRunner
from spark_bull.worker.job.interrupts import recording_interrupts
from spark_bull.worker.job.job_runner import Result
from spark_bull.worker.job.outcome_policy import NoReturnValue, returnvalue_text
from spark_bull.worker.job.running_job import RunningJob

#: Columns of claimed jobs that it reads.
INPUT: Final = ("queue", "id", "token", "data")
#: Schema of its rows, which mode=settle takes.
OUTPUT: Final = StructType(
    [
        StructField("queue", StringType()),
        StructField("id", StringType()),
        StructField("token", StringType()),
        StructField("returnvalue", StringType()),
        *ERROR_SCHEMA,
    ]
)
_ARROW: Final = to_arrow_schema(OUTPUT)


@dataclass(frozen=True)
class UdfTransformation:
    """Makes outcomes of batches of claimed jobs (INPUT). Picklable. chunk_size: maximum jobs per call; 0: any."""

    handle: QueueHandle
    runner: UdfRunner
    chunk_size: int = 0

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with recording_interrupts():
            yield from _batches(self, batches)


def _batches(transformation: UdfTransformation, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    # The payloads in a DataFrame have been opened.
    opened = replace(transformation.handle, payloads=PLAIN)
    for batch in batches:
        size = transformation.chunk_size or batch.num_rows
        for start in range(0, batch.num_rows, size):
            part = batch.slice(start, size)
            ids, texts = (part.column(name).to_pylist() for name in ("id", "data"))
            jobs = [RunningJob(ClaimedJob(job_id, data=text), opened) for job_id, text in zip(ids, texts, strict=True)]
            outcomes = {
                result.job: _outcome(transformation.handle, result)
                for results in transformation.runner(jobs, ())
                for result in results
            }
            yield _batch(part, [outcomes[job] for job in jobs])


def _batch(claimed: pa.RecordBatch, outcomes: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """The outcomes of claimed jobs as a batch of OUTPUT."""
    names = set().union(*outcomes)
    arrays = {
        field.name: pa.array([outcome.get(field.name) for outcome in outcomes], field.type)
        if field.name in names
        else pa.nulls(len(outcomes), field.type)
        for field in _ARROW
    }
    arrays |= {name: claimed.column(name).cast(_ARROW.field(name).type) for name in ("queue", "id", "token")}
    return pa.RecordBatch.from_arrays([arrays[field.name] for field in _ARROW], schema=_ARROW)


def _outcome(handle: QueueHandle, result: Result) -> dict[str, Any]:
    error = result.error
    if error is None:
        try:
            # NULL is the JSON text `null`; the empty text, for a value that the dialect does not store, is no JSON.
            return {"returnvalue": returnvalue_text(handle.dialect, result.value) or None}
        except NoReturnValue as no_value:
            error = no_value
    return error_columns(error)
