"""Jobs that wait for others: the column `children`, and parents that exist.

A column `children` has the jobs for which the job of the row waits. Further fields of its STRUCTs are `queue` (default:
the parent's), `onFailure` (what becomes of the parent when the job fails) and `children`. A parent that exists is named
by a column `parent`, or in `opts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from spark_bull.core.dialects.encode.chunks import EncodedJobs, with_own_ids
from spark_bull.core.dialects.encode.flows import Flows, Labels, Level
from spark_bull.core.queue.dispatch.add import check_parents
from spark_bull.core.queue.dispatch.flows import check_flows
from spark_bull.core.queue.dispatch.write_records import FLOWS, Fields
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.spark.dispatch.feature import Plan, TaskRows, WriteFeature, WriteRequest
from spark_bull.spark.dispatch.jobs_column import JobsColumn, jobs_in, plan_jobs
from spark_bull.spark.dispatch.rows import CHILDREN
from spark_bull.spark.platform.lazy_arrow import pa
from spark_bull.spark.staging.columns import QUEUE
from spark_bull.spark.staging.plan import TaskPart

ON_FAILURE: Final = "onFailure"


@dataclass(frozen=True)
class Children(WriteFeature):
    """column: how to read the column."""

    column: JobsColumn

    @classmethod
    def planned(cls, request: WriteRequest) -> Children | None:
        index = request.rows.columns.get(CHILDREN)
        return None if index is None else cls(plan_jobs(request.schema.fields[index], ON_FAILURE, CHILDREN))

    def flows(self, rows: TaskRows, children: pa.Array) -> Flows:
        """The flows of rows. children: the values of the column."""
        levels = _levels_of(self.column, rows.values, rows.handle.keys.queue, children, rows.numbers)
        return Flows(rows.handle.dialect, levels, rows.task.defaults, rows.numbers, rows.task.source)

    def queue_record(self, plan: Plan, handle: QueueHandle, parts: Sequence[TaskPart]) -> Fields:
        return FLOWS.fields({queue for part in parts for queue in part.flow_queues})


def _levels_of(
    plan: JobsColumn, rows: dict[str, list[Any]], queue: str, children: pa.Array, numbers: Sequence[int]
) -> list[Level]:
    """The flows whose first jobs have the properties `rows`, and belong to `queue`. numbers: row numbers."""
    levels = [Level(rows, [queue] * len(numbers))]
    below: JobsColumn | None = plan
    array: pa.Array | None = children
    while below is not None and array is not None:
        jobs, parents = jobs_in(array)
        if not parents:
            break
        labels = Labels([*(level.parents for level in levels[1:]), parents], numbers)
        properties, others = below.read(jobs, labels)
        own, above = properties.pop(QUEUE, [None] * len(parents)), levels[-1].queues
        queues = [name or above[parent] for name, parent in zip(own, parents, strict=True)]
        policies = others[ON_FAILURE].to_pylist() if ON_FAILURE in others else []
        levels.append(Level(properties, queues, parents, policies))
        array, below = others.get(CHILDREN), below.below
    return levels


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
