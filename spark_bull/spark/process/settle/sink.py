"""The sink mode=settle, and the same for one Spark job without a sink."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.types import StructType

from spark_bull.spark.process.settle.plan import SettlePlan, plan_settle
from spark_bull.spark.process.settle.task import Settled, settle_task
from spark_bull.spark.staging.sink import WriteSteps

log = logging.getLogger("spark_bull")

#: Schema of the counts of outcomes.
COUNTS: Final = "outcome STRING, jobs BIGINT"
_COUNTS: Final = pa.schema([("outcome", pa.string()), ("jobs", pa.int64())])


def settle_steps(raw: Mapping[str, str], schema: StructType) -> WriteSteps[SettlePlan, Settled]:
    """Plans a write with mode=settle. Raises the errors of `plan_settle`."""
    return WriteSteps(plan_settle(raw, schema), settle_task, log_rejected)


@dataclass(frozen=True)
class Settling:
    """The same for `DataFrame.mapInArrow`, in one Spark job without a sink; returns rows of COUNTS.

    transform: makes the rows with outcomes of batches of claimed jobs, in the same process; None: these are given.
    """

    plan: SettlePlan
    transform: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]] | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counts = settle_task(self.plan, batches if self.transform is None else self.transform(batches)).counts
        yield pa.RecordBatch.from_pydict({"outcome": list(counts), "jobs": list(counts.values())}, schema=_COUNTS)


def log_rejected(_: SettlePlan, settled: list[Settled]) -> None:
    """Logs how many outcomes were rejected."""
    lost = sum(one.counts.get("lost", 0) for one in settled)
    if lost:
        log.warning("%d outcomes were rejected, as their jobs' locks had expired; see the logs of the tasks", lost)
