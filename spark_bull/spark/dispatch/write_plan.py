"""The plan of a write that adds jobs, created on the driver for its tasks and its commit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_bull.dialects.terms import AT_LEAST_ONCE, DELIVERY
from spark_bull.spark.staging.plan import StagedPlan

if TYPE_CHECKING:
    from spark_bull.spark.dispatch.batch_callback import OnFinish
    from spark_bull.spark.dispatch.children_column import ChildrenPlan
    from spark_bull.spark.dispatch.rows import RowPlan


@dataclass(frozen=True, kw_only=True)
class WritePlan(StagedPlan):
    """on_finish: the job that runs when all jobs of the write have ended. replaces: whether the write replaces the
    queue, mode("overwrite"). children: how to read the column of children; None: rows are no flows. primary: with
    `replicas`, the replication id of Redis before the write.
    """

    rows: RowPlan
    on_finish: OnFinish | None = None
    replaces: bool = False
    children: ChildrenPlan | None = None
    primary: str | None = None

    @property
    def exactly_once(self) -> bool:
        return bool(self.options[DELIVERY] != AT_LEAST_ONCE)
