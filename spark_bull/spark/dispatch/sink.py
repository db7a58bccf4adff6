"""The sink: adds rows as jobs, exactly once or at least once.

`batch_writer()` and `stream_writer()` run on the driver before any task, and check everything. `write()` runs in a task
and stages chunks that workers do not see; a failed, speculative or zombie attempt has its own stage keys, which are not
committed. `commit()` runs on the driver, registers the stages of the successful attempts, and adds their jobs. With
`delivery=at-least-once`, `write()` adds each chunk directly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_bull.dialects.priorities import NAME as PRIORITY
from spark_bull.errors import OptionError
from spark_bull.keys import priority_queue
from spark_bull.queue.handle import QueueHandle
from spark_bull.queue.manage import check_obliterate, obliterate
from spark_bull.spark.dispatch.commit import abort_write, commit_empty, commit_write
from spark_bull.spark.dispatch.plan import WritePlan, plan_write
from spark_bull.spark.dispatch.task import write_task
from spark_bull.spark.staging.identity import check_stream, identity_of, identity_of_batch
from spark_bull.spark.staging.messages import Written
from spark_bull.spark.staging.sink import written_of


def batch_writer(raw: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """Creates the writer of `df.write.format("bull")`. Raises the errors of `plan_write`."""
    plan = plan_write(raw, schema)
    if not overwrite:
        return BatchWriter(plan)
    queue = _replaceable_queue(plan)
    if not plan.replayed and not plan.exactly_once:
        # Tasks add jobs directly, so the old ones must be removed before.
        obliterate(queue, force=True)
    return BatchWriter(replace(plan, replaces=True))


def _replaceable_queue(plan: WritePlan) -> QueueHandle:
    """Returns the queue that mode("overwrite") replaces. Raises OptionError, or QueueBusy if it has active jobs."""
    if not plan.options["confirmObliterate"]:
        raise OptionError(
            'mode("overwrite") deletes the queue with all its jobs: expected the option '
            '`confirmObliterate` to be true, got false; use mode("append") to add jobs'
        )
    if plan.handle is None:
        raise OptionError('mode("overwrite") expects the option `queue`, got a column `queue`')
    if plan.handle.dialect.has_priority_queues and (
        PRIORITY in plan.rows.columns or plan.options[PRIORITY] is not None
    ):
        raise OptionError(
            f'mode("overwrite") replaces one queue, but each `{PRIORITY}` of {plan.handle.dialect.name} is a queue: '
            f"obliterate {priority_queue(plan.handle.keys.queue, 'high')} and the others, then write with "
            'mode("append")'
        )
    if not plan.replayed:
        check_obliterate(plan.handle)
    return plan.handle


def stream_writer(raw: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """Creates the writer of `df.writeStream.format("bull")`. Raises the errors of `plan_write`."""
    if overwrite:
        raise OptionError('outputMode("complete") would replace the queue with every batch: use outputMode("append")')
    plan = plan_write(raw, schema)
    check_stream(plan.options)
    return StreamWriter(plan)


class BatchWriter(DataSourceArrowWriter):
    """The writer of one `save()`."""

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write_task(self._plan, iterator, identity_of(self._plan.options))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        commit_write(self._plan, written_of(messages), identity_of(self._plan.options))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        abort_write(self._plan, written_of(messages), identity_of(self._plan.options))


class StreamWriter(DataSourceStreamArrowWriter):
    """The writer of one micro-batch, whose identity is the query and the batch number."""

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write_task(self._plan, iterator, identity_of_batch())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        written = written_of(messages)
        if any(message.parts for message in written):
            commit_write(self._plan, written, written[0].identity)
        elif written:
            commit_empty(self._plan, written[0].identity)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        written = written_of(messages)
        # A batch without finished tasks is unknown here; its callback stays for the batch that repeats it.
        abort_write(self._plan, written, written[0].identity if written else None)
