"""Spans of the micro-batches of the engine `stream`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from spark_bull.core.tracing.tracer import spans_of
from spark_bull.run.job.traced import carried_in
from spark_bull.spark.platform.spark_errors import first_line
from spark_bull.spark.work.batch_processor import BatchProcessor
from spark_bull.spark.work.stream_plan import StreamPlan

if TYPE_CHECKING:
    from spark_bull.core.tracing.otel import Attributes, Spans

log = logging.getLogger("spark_bull")


class TracedBatches:
    """Processes each micro-batch in a span with links to those that added its jobs. Picklable, as BatchProcessor is.

    Reads the contexts of the jobs in a Spark job of their own.
    """

    def __init__(self, processor: BatchProcessor, plan: StreamPlan) -> None:
        self._processor = processor
        self._plan = plan
        self._spans: Spans | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return TracedBatches, (self._processor, self._plan)

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Processes a micro-batch. Raises the errors of BatchProcessor."""
        self._spans = self._spans or spans_of(self._plan.tracer)
        jobs = self._linked(batch)
        if self._spans is None or not jobs:
            self._processor(batch, number)
            return
        worker = {"bullmq.worker.id": self._plan.reader, "bullmq.worker.name": self._plan.claim.get("workerName")}
        with self._spans.processing_batch(self._plan.handle.keys.queue, jobs, worker) as span:
            before = self._processor.failed
            self._processor(batch, number)
            span.failed_of(len(jobs), self._processor.failed - before)

    def _linked(self, batch: DataFrame) -> list[tuple[object, Attributes]]:
        """What each job carries, and the attributes of its link; [] if the jobs cannot be read."""
        try:
            rows = batch.select("id", "name", "opts").collect()
        except Exception as error:
            log.warning(
                "worker %s: no span of a batch, its jobs can't be read: %s", self._plan.reader, first_line(error)
            )
            return []
        return [(carried_in(row.opts), {"bullmq.job.id": row.id, "bullmq.job.name": row.name}) for row in rows]

    def flush(self) -> None:
        """Exports the spans that have ended in this process."""
        if self._spans is not None:
            self._spans.flush()
