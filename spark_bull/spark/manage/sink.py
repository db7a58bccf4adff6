"""The sink of mode=manage: rows change existing jobs, exactly once.

As for a write that adds jobs, tasks stage their rows and the driver registers the stages of the successful attempts;
from then on any process can make the changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import StructType

from spark_bull.errors import OptionError
from spark_bull.spark.manage.commit import commit_changes
from spark_bull.spark.manage.plan import ManagePlan, plan_manage
from spark_bull.spark.manage.task import stage_task
from spark_bull.spark.staging.identity import check_stream
from spark_bull.spark.staging.messages import Written
from spark_bull.spark.staging.sink import BatchStager, Steps, StreamStager

_STEPS: Final = Steps(stage_task, commit_changes)


def batch_manager(raw: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchStager[ManagePlan, Written]:
    """Creates the writer of a batch with mode=manage. Raises the errors of `plan_manage`."""
    if overwrite:
        raise OptionError('mode=manage changes existing jobs: expected mode("append"), got mode("overwrite")')
    return BatchStager(plan_manage(raw, schema), _STEPS)


def stream_manager(raw: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamStager[ManagePlan, Written]:
    """Creates the writer of a stream with mode=manage. Raises the errors of `plan_manage`."""
    if overwrite:
        raise OptionError('mode=manage changes existing jobs: expected outputMode("append"), got "complete"')
    plan = plan_manage(raw, schema)
    check_stream(plan.options)
    return StreamStager(plan, _STEPS)
