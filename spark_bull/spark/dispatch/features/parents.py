"""Rows whose jobs are children of jobs that exist: by a column `parent`, or in `opts`."""

from __future__ import annotations

from dataclasses import dataclass

from spark_bull.core.dialects.encode.chunks import EncodedJobs, with_own_ids
from spark_bull.core.dialects.encode.flows import Flows
from spark_bull.core.queue.dispatch.flows import check_flows
from spark_bull.core.queue.dispatch.parents import check_parents
from spark_bull.spark.dispatch.feature import TaskRows, WriteFeature, WriteRequest


@dataclass(frozen=True)
class Parents(WriteFeature):
    """are_checked: whether parents exist before the write; the parent by `onFinish` does not.

    A task that adds children again, as it is repeated, gives them the same ids.
    """

    are_checked: bool

    @classmethod
    def planned(cls, request: WriteRequest) -> Parents:
        return cls(request.options.on_finish is None)

    def encode(self, jobs: EncodedJobs, rows: TaskRows) -> EncodedJobs:
        if jobs.parent_id is None:
            return jobs
        if self.are_checked and not rows.task.has_written(rows.handle):
            check_parents(rows.handle, jobs, rows.numbers)
        if rows.task.source is None:
            return jobs
        return with_own_ids(jobs, rows.values, rows.handle.keys.queue, rows.numbers, rows.task.source)

    def check_flows(self, flows: Flows, rows: TaskRows) -> None:
        if self.are_checked and not rows.task.has_written(rows.handle):
            check_flows(rows.handle, flows)
