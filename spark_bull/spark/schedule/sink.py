"""The sink of mode=schedule: rows create or change schedules, exactly once.

As for a write that adds jobs, tasks stage their rows and the driver registers the stages of the successful attempts;
from then on any process can finish the write.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import StructType

from spark_bull.errors import OptionError
from spark_bull.spark.schedule.commit import commit_schedules
from spark_bull.spark.schedule.plan import SchedulePlan, WrittenSchedules, plan_schedules
from spark_bull.spark.schedule.task import stage_task
from spark_bull.spark.staging.identity import check_stream
from spark_bull.spark.staging.sink import BatchStager, Steps, StreamStager

_STEPS: Final = Steps(stage_task, commit_schedules)


def batch_scheduler(
    raw: Mapping[str, str], schema: StructType, overwrite: bool
) -> BatchStager[SchedulePlan, WrittenSchedules]:
    """Creates the writer of a batch with mode=schedule. Raises the errors of `plan_schedules`."""
    if overwrite:
        raise OptionError('mode=schedule adds and changes schedules: expected mode("append"), got mode("overwrite")')
    return BatchStager(plan_schedules(raw, schema), _STEPS)


def stream_scheduler(
    raw: Mapping[str, str], schema: StructType, overwrite: bool
) -> StreamStager[SchedulePlan, WrittenSchedules]:
    """Creates the writer of a stream with mode=schedule. Raises the errors of `plan_schedules`."""
    if overwrite:
        raise OptionError('mode=schedule adds and changes schedules: expected outputMode("append"), got "complete"')
    plan = plan_schedules(raw, schema)
    check_stream(plan.options)
    return StreamStager(plan, _STEPS)
