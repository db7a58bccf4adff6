"""The sink of mode=settle, and the same for one Spark job without a sink."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.types import Row, StructType

from spark_bull.run.slot.slot_report import FailedAttempt
from spark_bull.spark.platform.arrow import to_arrow_schema
from spark_bull.spark.schemas import table_of
from spark_bull.spark.staging.sink import Sink, refuse_overwrite
from spark_bull.spark.work.settle.plan import SettlePlan, plan_settle
from spark_bull.spark.work.settle.task import Settled, settle_task

log = logging.getLogger("spark_bull")

#: Schema of what a task has settled.
SETTLED: Final = table_of(
    "counts map<string,bigint>",
    "failures array<struct<number: bigint, queue: string, job: string, reason: string, trace: string>>",
)
_ARROW: Final = to_arrow_schema(SETTLED)


def settle_sink(
    raw: Mapping[str, str], schema: StructType, overwrite: bool, *, is_stream: bool
) -> Sink[SettlePlan, Settled]:
    """Plans a write with mode=settle. Raises the errors of `plan_settle`."""
    if overwrite:
        raise refuse_overwrite("mode=settle settles claimed jobs", is_stream=is_stream)
    return Sink(plan_settle(raw, schema), settle_task, log_rejected)


@dataclass(frozen=True)
class Settling:
    """Settles the rows of a task, for `DataFrame.mapInArrow`, without a sink; returns a row of SETTLED."""

    plan: SettlePlan

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settled = settle_task(self.plan, batches)
        row = {"counts": settled.counts, "failures": [asdict(one) for one in settled.failures]}
        yield pa.RecordBatch.from_pylist([row], schema=_ARROW)


def failures_of(row: Row) -> Iterator[FailedAttempt]:
    """The failures in a row of SETTLED."""
    for one in row.failures:
        yield FailedAttempt(**one.asDict())


def log_rejected(_: SettlePlan, settled: list[Settled]) -> None:
    """Logs how many outcomes were rejected."""
    lost = sum(one.counts.get("lost", 0) for one in settled)
    if lost:
        log.warning("%d outcomes were rejected, as their jobs' locks had expired; see the logs of the tasks", lost)
