"""A UDF as a transformation of claimed jobs: what it makes of each, or the error it raises over that one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame

from spark_bull.dialects.handle import QueueHandle
from spark_bull.outcomes import ClaimedJob
from spark_bull.runtime.error_text import reason_of, trace_of
from spark_bull.runtime.interrupts import watching_interrupts
from spark_bull.runtime.job import RunningJob
from spark_bull.runtime.job_runner import Result
from spark_bull.runtime.settling import NoReturnValue, returnvalue_text
from spark_bull.spark.udf_runner import UdfRunner

_SCHEMA: Final = "queue STRING, id STRING, token STRING, returnvalue STRING, error STRING, stacktrace STRING"


@dataclass(frozen=True)
class UdfTransformation:
    """Transforms a DataFrame of claimed jobs. Picklable."""

    handle: QueueHandle
    runner: UdfRunner

    def __call__(self, jobs: DataFrame) -> DataFrame:
        return jobs.select("queue", "id", "token", "data").mapInArrow(partial(_run, self), _SCHEMA)


def _run(plan: UdfTransformation, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with watching_interrupts():
        yield from _batches(plan, batches)


def _batches(plan: UdfTransformation, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = batch.to_pylist()
        jobs = [RunningJob(ClaimedJob(row["id"], 0, row["data"], None, "{}", 0, 0), plan.handle) for row in rows]
        made = [_outcome(plan.handle, result) for result in plan.runner(jobs, ())]
        yield pa.RecordBatch.from_pylist(
            [
                {"queue": row["queue"], "token": row["token"], **outcome}
                for row, outcome in zip(rows, made, strict=True)
            ],
            pa.schema([(column.split()[0], pa.string()) for column in _SCHEMA.split(", ")]),
        )


def _outcome(handle: QueueHandle, result: Result) -> dict[str, Any]:
    job_id, error = result.job.claimed.id, result.error
    if error is None:
        try:
            return {"id": job_id, "returnvalue": returnvalue_text(handle.dialect, result.value)}
        except NoReturnValue as no_value:
            error = no_value
    return {"id": job_id, "error": reason_of(error), "stacktrace": trace_of(error)}
