"""The sink of mode=manage: rows change existing jobs, exactly once."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import StructType

from spark_bull.spark.manage.commit import commit_changes
from spark_bull.spark.manage.plan import ManagePlan, plan_manage
from spark_bull.spark.manage.task import stage_changes
from spark_bull.spark.staging.commit import discard_stages
from spark_bull.spark.staging.messages import Written
from spark_bull.spark.staging.sink import WriteSteps, refuse_overwrite


def manage_steps(
    raw: Mapping[str, str], schema: StructType, overwrite: bool, *, is_stream: bool
) -> WriteSteps[ManagePlan, Written]:
    """Plans a write with mode=manage. Raises the errors of `plan_manage`."""
    if overwrite:
        raise refuse_overwrite("mode=manage changes existing jobs", is_stream=is_stream)
    return WriteSteps(plan_manage(raw, schema, is_stream=is_stream), stage_changes, commit_changes, discard_stages)
