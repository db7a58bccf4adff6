"""The sink of mode=schedule: rows create or change job schedulers, exactly once."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import StructType

from spark_bull.spark.schedule.commit import commit_schedulers
from spark_bull.spark.schedule.plan import SchedulePlan, plan_schedulers
from spark_bull.spark.schedule.task import stage_schedulers
from spark_bull.spark.staging.commit import discard_stages
from spark_bull.spark.staging.messages import Written
from spark_bull.spark.staging.sink import WriteSteps, refuse_overwrite


def schedule_steps(
    raw: Mapping[str, str], schema: StructType, overwrite: bool, *, is_stream: bool
) -> WriteSteps[SchedulePlan, Written]:
    """Plans a write with mode=schedule. Raises the errors of `plan_schedulers`."""
    if overwrite:
        raise refuse_overwrite("mode=schedule adds and changes job schedulers", is_stream=is_stream)
    plan = plan_schedulers(raw, schema, is_stream=is_stream)
    return WriteSteps(plan, stage_schedulers, commit_schedulers, discard_stages)
