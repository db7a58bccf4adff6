"""The sink of mode=manage: rows change existing jobs, exactly once.

As for a write that adds jobs, tasks stage their rows and the driver registers the stages of the successful attempts;
from then on any process can make the changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_bull.errors import OptionError
from spark_bull.spark.dispatch.commit import discard_stages
from spark_bull.spark.dispatch.plan import Written, identity_of
from spark_bull.spark.dispatch.sink import identity_of_batch, written_of
from spark_bull.spark.manage.commit import commit_changes
from spark_bull.spark.manage.plan import ManagePlan, plan_manage
from spark_bull.spark.manage.task import stage_task


def batch_manager(raw: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchManager:
    """Creates the writer of a batch with mode=manage. Raises the errors of `plan_manage`."""
    if overwrite:
        raise OptionError('mode=manage changes existing jobs: expected mode("append"), got mode("overwrite")')
    return BatchManager(plan_manage(raw, schema))


def stream_manager(raw: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamManager:
    """Creates the writer of a stream with mode=manage. Raises the errors of `plan_manage`."""
    if overwrite:
        raise OptionError('mode=manage changes existing jobs: expected outputMode("append"), got "complete"')
    plan = plan_manage(raw, schema)
    if plan.options["txnAppId"] is not None:
        raise OptionError("`txnAppId` is for batch writes: a stream is identified by its checkpoint; leave it out")
    return StreamManager(plan)


class BatchManager(DataSourceArrowWriter):
    """The writer of one `save()`."""

    def __init__(self, plan: ManagePlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return stage_task(self._plan, iterator, identity_of(self._plan.options))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        commit_changes(self._plan, written_of(messages), identity_of(self._plan.options))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        discard_stages(self._plan.options, written_of(messages))


class StreamManager(DataSourceStreamArrowWriter):
    """The writer of one micro-batch, whose identity is the query and the batch number."""

    def __init__(self, plan: ManagePlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return stage_task(self._plan, iterator, identity_of_batch())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        written = written_of(messages)
        if any(message.parts for message in written):
            commit_changes(self._plan, written, written[0].identity)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        discard_stages(self._plan.options, written_of(messages))
