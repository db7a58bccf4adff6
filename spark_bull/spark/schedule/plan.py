"""The plan of a write of schedules, created on the driver before any task starts, and the messages of its tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from pyspark.sql.types import StructType

from spark_bull.dialects.registry import DIALECTS
from spark_bull.options.parse import parse_options
from spark_bull.options.table import SCHEDULE
from spark_bull.queue.core.handle import open_handle
from spark_bull.queue.core.intake import check_intake
from spark_bull.queue.dispatch.writes import is_written, recover
from spark_bull.spark.schedule.rows import ScheduleRows, plan_rows
from spark_bull.spark.staging.identity import identity_of
from spark_bull.spark.staging.messages import Written
from spark_bull.spark.staging.plan import StagedPlan
from spark_bull.store.connection import Connection
from spark_bull.store.settings import resolved, settings_of


@dataclass(frozen=True)
class WrittenSchedules(Written):
    """The commit message of a task. ids: of the schedules, by queue. frequent: of those with very short intervals."""

    ids: Mapping[str, tuple[str, ...]] | None = None
    frequent: Mapping[str, tuple[str, ...]] | None = None


@dataclass(frozen=True, kw_only=True)
class SchedulePlan(StagedPlan):
    rows: ScheduleRows

    @property
    def defaults(self) -> dict[str, Any]:
        """The defaults of the jobs of all schedules."""
        return {name: self.options[name] for name in ("name", "opts") if self.options[name] is not None}


def plan_schedules(raw: Mapping[str, str], schema: StructType) -> SchedulePlan:
    """Checks the options, columns and Redis, and recovers interrupted writes.

    Raises OptionError, DialectError, IntakeClosed or ConnectionLost before any task starts.
    """
    options = resolved(parse_options(raw, SCHEDULE))
    rows = plan_rows(schema, options)
    connection, queue = Connection(settings_of(options)), options["queue"]
    connection.check(options["prefix"], [queue or ""], write=True)
    plan = SchedulePlan(options=options, write_id=uuid4().hex, started_on=connection.now_ms(), rows=rows)
    if queue is None:
        if options["protocol"] in DIALECTS:
            DIALECTS[options["protocol"]].require("schedules")
        return plan
    handle = open_handle(options, queue)
    handle.dialect.require("schedules")
    recover(handle)
    identity = identity_of(options)
    replayed = identity is not None and is_written(handle, identity)
    if not replayed:
        check_intake(handle)
    return replace(plan, handle=handle, replayed=replayed)
