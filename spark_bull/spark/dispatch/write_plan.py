"""The plan of a write that adds jobs, created on the driver for its tasks and its commit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from spark_bull.core.dialects.terms import AT_LEAST_ONCE, DELIVERY
from spark_bull.core.options.table import ALL_EVENTS
from spark_bull.core.queue.dispatch.graph import DEPENDS_ON
from spark_bull.core.queue.dispatch.registration import SHARDS_EPOCH
from spark_bull.core.queue.dispatch.writes import Identity, QueuePlan
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.handle.length_limit import length_limit_of
from spark_bull.core.queue.shards.layout import ShardLayout
from spark_bull.spark.dispatch.batch_callback import OnFinish
from spark_bull.spark.dispatch.jobs_column import JobsColumn
from spark_bull.spark.dispatch.rows import RowPlan
from spark_bull.spark.staging.messages import CommitMessage, TaskPart
from spark_bull.spark.staging.plan import StagedPlan

#: What tasks count that add jobs directly.
_COUNTS = ("added", "duplicates", "deduplicated", "rejected", "dropped")


@dataclass(frozen=True, kw_only=True)
class WritePlan(StagedPlan[RowPlan]):
    """on_finish: the job that runs when all jobs of the write have ended. replaces: whether the write replaces the
    queue, mode("overwrite"). children: how to read the column of children; None: rows are no flows. layout: the
    shards of the queue; None: it has none.
    """

    on_finish: OnFinish | None = None
    replaces: bool = False
    children: JobsColumn | None = None
    layout: ShardLayout | None = None

    @property
    def exactly_once(self) -> bool:
        return bool(self.options[DELIVERY] != AT_LEAST_ONCE)

    @property
    def planned_queues(self) -> list[str]:
        # A write that replaces the queue empties each shard.
        return self.layout.all_names if self.layout and self.replaces else super().planned_queues

    @property
    def idle_queues(self) -> list[str]:
        return self.layout.names if self.layout else super().idle_queues

    def queue_plans(self, written: Sequence[CommitMessage]) -> list[QueuePlan]:
        """With the callback of the write, if it has one: then no rows are a write to its queue."""
        plans, on_finish = super().queue_plans(written), self.on_finish
        if on_finish is None:
            return plans
        plans = plans or [self.queue_plan(self.handle_of(on_finish.job.queue))]
        queues = [queue_plan.handle.keys.queue for queue_plan in plans] if self.exactly_once else None
        callback = on_finish.callback(self.write_id_in(written), self.identity_in(written), queues).text
        return [replace(one, fields={**one.fields, "callback": callback}) for one in plans]

    def queue_plan(self, handle: QueueHandle, parts: Sequence[TaskPart] = (), since: int | None = None) -> QueuePlan:
        plan = super().queue_plan(handle, parts, since)
        if self.layout is None or handle is not self.handle:
            return plan
        return replace(plan, fields={**plan.fields, SHARDS_EPOCH: self.layout.epoch})

    def has_written(self, handle: QueueHandle, identity: Identity | None) -> bool:
        # An overwrite with at-least-once delivery has removed the jobs of the earlier run.
        replaced = self.replaces and not self.exactly_once
        return not replaced and super().has_written(handle, identity)

    def fields(self, parts: Sequence[TaskPart]) -> dict[str, str | int]:
        jobs = sum(part.rows for part in parts)
        fields: dict[str, str | int] = {"jobs": jobs}
        if self.children is not None:
            fields["flows"] = json.dumps(sorted({queue for part in parts for queue in part.flow_queues}))
        if DEPENDS_ON in self.rows.columns:
            fields["graph"] = 1
        if self.options["keepIds"]:
            fields["keepsIds"] = 1
        if self.options["events"] != ALL_EVENTS:
            fields["events"] = self.options["events"]
        if not self.exactly_once:
            counts = {name: sum(getattr(part, name) for part in parts) for name in _COUNTS}
            return {**fields, "delivery": AT_LEAST_ONCE, "position": jobs, **counts}
        if self.replaces:
            fields["replace"] = 1
        limit = length_limit_of(self.options)
        return fields if limit is None else fields | limit.fields
