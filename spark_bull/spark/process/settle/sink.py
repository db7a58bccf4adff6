"""The sink mode=settle, and the same for one Spark job without a sink."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from spark_bull.spark.process.settle.chunk import Outcome
from spark_bull.spark.process.settle.plan import SettlePlan
from spark_bull.spark.process.settle.task import Settled, settle_task

log = logging.getLogger("spark_bull")

#: Schema of the counts of outcomes.
COUNTS: Final = "outcome STRING, jobs BIGINT"
_COUNTS: Final = pa.schema([("outcome", pa.string()), ("jobs", pa.int64())])


class BatchSettler(DataSourceArrowWriter):
    """One `save()` with mode=settle."""

    def __init__(self, plan: SettlePlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Settled:
        return settle_task(self._plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        log_rejected(messages)


class StreamSettler(DataSourceStreamArrowWriter):
    """One micro-batch with mode=settle."""

    def __init__(self, plan: SettlePlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Settled:
        return settle_task(self._plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        log_rejected(messages)


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


def log_rejected(messages: list[WriterCommitMessage | None]) -> None:
    """Logs how many outcomes were rejected."""
    total = sum((Counter(m.counts) for m in messages if isinstance(m, Settled)), Counter[Outcome]())
    if total["lost"]:
        log.warning(
            "%d outcomes were rejected, as their jobs' locks had expired; see the logs of the tasks", total["lost"]
        )
