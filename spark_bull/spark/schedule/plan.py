"""The plan of a write of job schedulers, created on the driver before any task starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import StructType

from spark_bull.core.dialects.registry import DIALECTS
from spark_bull.core.options.parse import parse_options
from spark_bull.core.options.table import SCHEDULE
from spark_bull.core.queue.handle.handle import open_handle
from spark_bull.core.store.settings import resolved
from spark_bull.spark.schedule.rows import ScheduleRows, plan_rows
from spark_bull.spark.staging.messages import TaskPart
from spark_bull.spark.staging.plan import StagedPlan, check_write, primaries_of


@dataclass(frozen=True, kw_only=True)
class SchedulePlan(StagedPlan):
    rows: ScheduleRows

    @property
    def defaults(self) -> dict[str, Any]:
        """The defaults of the jobs of all job schedulers."""
        return {name: self.options[name] for name in ("name", "opts") if self.options[name] is not None}

    def fields(self, parts: Sequence[TaskPart]) -> dict[str, str | int]:
        return {"mode": "schedule"}


def plan_schedulers(raw: Mapping[str, str], schema: StructType, *, is_stream: bool = False) -> SchedulePlan:
    """Checks the options, columns and Redis, and recovers interrupted writes.

    Raises OptionError, DialectError, IntakeClosed or ConnectionLost before any task starts.
    """
    options = resolved(parse_options(raw, SCHEDULE))
    rows = plan_rows(schema, options)
    started_on = check_write(options, is_stream=is_stream)
    plan = SchedulePlan(
        options=options, is_stream=is_stream, started_on=started_on, rows=rows, primaries=primaries_of(options)
    )
    if options["queue"] is None:
        if options["protocol"] in DIALECTS:
            DIALECTS[options["protocol"]].require("schedulers")
        return plan
    handle = open_handle(options, options["queue"])
    handle.dialect.require("schedulers")
    return plan.for_queue(handle)
