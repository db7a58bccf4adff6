"""The sink of mode=schedule: rows create or change schedules, exactly once.

As for a write that adds jobs, tasks stage their rows and the driver registers the stages of the successful attempts;
from then on any process can finish the write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_bull.errors import OptionError
from spark_bull.spark.dispatch.commit import discard_stages
from spark_bull.spark.dispatch.plan import identity_of
from spark_bull.spark.dispatch.sink import identity_of_batch, written_of
from spark_bull.spark.schedule.commit import commit_schedules
from spark_bull.spark.schedule.plan import SchedulePlan, WrittenSchedules, plan_schedules
from spark_bull.spark.schedule.task import stage_task


def batch_scheduler(raw: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchScheduler:
    """Creates the writer of a batch with mode=schedule. Raises the errors of `plan_schedules`."""
    if overwrite:
        raise OptionError('mode=schedule adds and changes schedules: expected mode("append"), got mode("overwrite")')
    return BatchScheduler(plan_schedules(raw, schema))


def stream_scheduler(raw: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamScheduler:
    """Creates the writer of a stream with mode=schedule. Raises the errors of `plan_schedules`."""
    if overwrite:
        raise OptionError('mode=schedule adds and changes schedules: expected outputMode("append"), got "complete"')
    plan = plan_schedules(raw, schema)
    if plan.options["txnAppId"] is not None:
        raise OptionError("`txnAppId` is for batch writes: a stream is identified by its checkpoint; leave it out")
    return StreamScheduler(plan)


class BatchScheduler(DataSourceArrowWriter):
    """The writer of one `save()`."""

    def __init__(self, plan: SchedulePlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenSchedules:
        return stage_task(self._plan, iterator, identity_of(self._plan.options))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        commit_schedules(self._plan, _written(messages), identity_of(self._plan.options))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        discard_stages(self._plan.options, written_of(messages))


class StreamScheduler(DataSourceStreamArrowWriter):
    """The writer of one micro-batch, whose identity is the query and the batch number."""

    def __init__(self, plan: SchedulePlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenSchedules:
        return stage_task(self._plan, iterator, identity_of_batch())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        written = _written(messages)
        if any(message.parts for message in written):
            commit_schedules(self._plan, written, written[0].identity)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        discard_stages(self._plan.options, written_of(messages))


def _written(messages: Iterable[WriterCommitMessage | None]) -> list[WrittenSchedules]:
    return [message for message in messages if isinstance(message, WrittenSchedules)]
