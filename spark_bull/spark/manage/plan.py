"""The plan of a write that changes jobs, created on the driver before any task starts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql.types import StructType

from spark_bull.core.dialects.changes import action_of
from spark_bull.core.options.parse import parse_options
from spark_bull.core.options.table import MANAGE
from spark_bull.core.queue.handle.handle import open_handle
from spark_bull.core.store.settings import resolved
from spark_bull.spark.manage.result_file import check_path
from spark_bull.spark.manage.rows import ChangeRows, plan_rows
from spark_bull.spark.staging.messages import TaskPart
from spark_bull.spark.staging.plan import StagedPlan, check_write, primaries_of


@dataclass(frozen=True, kw_only=True)
class ManagePlan(StagedPlan):
    adds = False

    rows: ChangeRows

    def fields(self, parts: Sequence[TaskPart]) -> dict[str, str | int]:
        moved_to = sorted({queue for part in parts for queue in part.flow_queues})
        keeps = {} if self.options["resultPath"] is None else {"outcomes": 1}
        return {"mode": "manage", "moves": json.dumps(moved_to), **keeps}


def plan_manage(raw: Mapping[str, str], schema: StructType, *, is_stream: bool = False) -> ManagePlan:
    """Checks the options, columns and Redis, and recovers interrupted writes.

    Raises OptionError, DialectError or ConnectionLost before any task starts.
    """
    options = resolved(parse_options(raw, MANAGE))
    rows = plan_rows(schema, options)
    started_on = check_write(options, is_stream=is_stream)
    check_path(options["resultPath"])
    plan = ManagePlan(
        options=options, is_stream=is_stream, started_on=started_on, rows=rows, primaries=primaries_of(options)
    )
    if options["queue"] is None:
        return plan
    handle = open_handle(options, options["queue"])
    if options["action"] is not None:
        action_of(handle.dialect, options["action"])
    return plan.for_queue(handle)
