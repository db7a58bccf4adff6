"""The writers of the sink: add rows as jobs, exactly once or at least once.

`write()` runs in a task and stages chunks that workers do not see; a failed, speculative or zombie attempt has its own
stage keys, which are not committed. `commit()` runs on the driver, registers the stages of the successful attempts, and
adds their jobs. With `delivery=at-least-once`, `write()` adds each chunk directly. Each runs in a process of its own,
which imports only what it needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from spark_bull.spark.dispatch.write_plan import WritePlan
from spark_bull.spark.staging.identity import identity_of, identity_of_batch
from spark_bull.spark.staging.messages import Written, written_of

if TYPE_CHECKING:
    import pyarrow as pa


class BatchWriter(DataSourceArrowWriter):
    """The writer of one `save()`."""

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        from spark_bull.spark.dispatch.task import write_task

        return write_task(self._plan, iterator, identity_of(self._plan.options))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        from spark_bull.spark.dispatch.commit import commit_write

        commit_write(self._plan, written_of(messages), identity_of(self._plan.options))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        from spark_bull.spark.dispatch.commit import abort_write

        abort_write(self._plan, written_of(messages), identity_of(self._plan.options))


class StreamWriter(DataSourceStreamArrowWriter):
    """The writer of one micro-batch, whose identity is the query and the batch number."""

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        from spark_bull.spark.dispatch.task import write_task

        return write_task(self._plan, iterator, identity_of_batch())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        from spark_bull.spark.dispatch.commit import commit_empty, commit_write

        written = written_of(messages)
        if any(message.parts for message in written):
            commit_write(self._plan, written, written[0].identity)
        elif written:
            commit_empty(self._plan, written[0].identity)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        from spark_bull.spark.dispatch.commit import abort_write

        written = written_of(messages)
        # A batch without finished tasks is unknown here; its callback stays for the batch that repeats it.
        abort_write(self._plan, written, written[0].identity if written else None)
