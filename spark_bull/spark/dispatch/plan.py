"""The plan of a write that adds jobs, created on the driver for its tasks and its commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from spark_bull.core.dialects.base import Dialect
from spark_bull.core.dialects.encode.codec import check_defaults, defaults_of
from spark_bull.core.dialects.terms import AT_LEAST_ONCE
from spark_bull.core.options.table import ALL_EVENTS, WriteOptions
from spark_bull.core.queue.dispatch.write_records import Fields, Identity
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.shards.layout import of_dialect
from spark_bull.spark.dispatch.feature import WholeWrite, WriteFeature
from spark_bull.spark.dispatch.features.routing import Shards, named_default
from spark_bull.spark.dispatch.rows import RowPlan
from spark_bull.spark.staging.plan import CommitMessage, StagedPlan, TaskPart

#: What tasks count that add jobs directly.
_COUNTS = ("added", "duplicates", "deduplicated", "rejected", "dropped")


@dataclass(frozen=True, kw_only=True)
class WritePlan(StagedPlan[RowPlan]):
    """features: the features that the write has, in their order; `shards` is one of them. replaces: whether the write
    replaces the queue, mode("overwrite").
    """

    options: WriteOptions
    features: tuple[WriteFeature, ...]
    shards: Shards | None = None
    replaces: bool = False

    @property
    def exactly_once(self) -> bool:
        return self.options.delivery != AT_LEAST_ONCE

    def opened(self) -> WritePlan:
        if self.shards is None:
            return super().opened()
        plan = replace(self, options=of_dialect(self.options, self.shards.layout))
        self.shards.recover(plan)
        return plan.for_queue(self.shards.first)

    def check_dialect(self, dialect: Dialect) -> None:
        self.rows.check_dialect(dialect)
        check_defaults(dialect, named_default(dialect, defaults_of(self.options)))

    def check_queue(self, handle: QueueHandle) -> None:
        super().check_queue(handle)
        for feature in self.features:
            feature.check(handle)

    @property
    def planned_queues(self) -> list[str]:
        # A write that replaces the queue empties each shard.
        return self.shards.layout.all_names if self.shards and self.replaces else super().planned_queues

    @property
    def idle_queues(self) -> list[str]:
        return self.shards.layout.names if self.shards else super().idle_queues

    def has_written(self, handle: QueueHandle, identity: Identity | None) -> bool:
        # An overwrite with at-least-once delivery has removed the jobs of the earlier run.
        replaced = self.replaces and not self.exactly_once
        return not replaced and super().has_written(handle, identity)

    def common_fields(self, written: Sequence[CommitMessage], queues: Sequence[str]) -> Fields:
        write = WholeWrite(self, self.write_id_in(written), self.identity_in(written), queues)
        fields: dict[str, str | int] = {}
        for feature in self.features:
            fields |= feature.record(write)
        if self.options.events != ALL_EVENTS:
            fields["events"] = self.options.events
        if self.replaces and self.exactly_once:
            fields["replace"] = 1
        return fields

    def fields(self, handle: QueueHandle, parts: Sequence[TaskPart]) -> Fields:
        jobs = sum(part.rows for part in parts)
        fields: dict[str, str | int] = {"jobs": jobs}
        for feature in self.features:
            fields |= feature.queue_record(self, handle, parts)
        if not self.exactly_once:
            counts = {name: sum(getattr(part, name) for part in parts) for name in _COUNTS}
            fields |= {"delivery": AT_LEAST_ONCE, "position": jobs, **counts}
        return fields
