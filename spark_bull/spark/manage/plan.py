"""The plan of a write that changes jobs, created on the driver before any task starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from uuid import uuid4

from pyspark.sql.types import StructType

from spark_bull.dialects.changes import action_of
from spark_bull.options.parse import parse_options
from spark_bull.options.table import MANAGE
from spark_bull.queue.core.handle import open_handle
from spark_bull.queue.dispatch.writes import is_written, recover
from spark_bull.spark.manage.result_file import check_path
from spark_bull.spark.manage.rows import ChangeRows, plan_rows
from spark_bull.spark.staging.identity import identity_of
from spark_bull.spark.staging.plan import StagedPlan
from spark_bull.store.connection import Connection
from spark_bull.store.settings import resolved, settings_of


@dataclass(frozen=True, kw_only=True)
class ManagePlan(StagedPlan):
    rows: ChangeRows


def plan_manage(raw: Mapping[str, str], schema: StructType) -> ManagePlan:
    """Checks the options, columns and Redis, and recovers interrupted writes.

    Raises OptionError, DialectError or ConnectionLost before any task starts.
    """
    options = resolved(parse_options(raw, MANAGE))
    rows = plan_rows(schema, options)
    connection, queue = Connection(settings_of(options)), options["queue"]
    connection.check(options["prefix"], [queue or ""], write=True)
    check_path(options["resultPath"])
    plan = ManagePlan(options=options, write_id=uuid4().hex, started_on=connection.now_ms(), rows=rows)
    if queue is None:
        return plan
    handle = open_handle(options, queue)
    if options["action"] is not None:
        action_of(handle.dialect, options["action"])
    recover(handle)
    identity = identity_of(options)
    replayed = identity is not None and is_written(handle, identity)
    return replace(plan, handle=handle, replayed=replayed)
