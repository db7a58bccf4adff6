"""The column `then` of rows with outcomes: jobs that are added in the step that settles the job of the row.

It is an ARRAY of STRUCTs. The fields of a STRUCT are `data` and settings of the job, by the names and types of columns
that are dispatched; `queue` (default: that of the settled job); and `on`: success (default) or failure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from spark_bull.errors import DialectError, OptionError
from spark_bull.model.outcomes import FollowUp
from spark_bull.queue.core.handle import QueueHandle
from spark_bull.queue.dispatch.follow_ups import check_bounds, encode_follow_ups
from spark_bull.spark.dispatch.rows import RowPlan, plan_fields
from spark_bull.spark.platform.lazy_arrow import pa, pc
from spark_bull.spark.staging.queue_rows import QUEUE

THEN: Final = "then"
_ON: Final = "on"


@dataclass(frozen=True)
class FollowUps:
    """Follow-ups by the ids of the settled jobs, and why those of other jobs are invalid."""

    valid: dict[str, list[FollowUp]]
    errors: dict[str, str]


@dataclass(frozen=True)
class FollowUpPlan:
    """How to read the column. rows: the fields of a STRUCT without `on`. on: the index of that; None: it is absent."""

    rows: RowPlan
    on: int | None

    def read(self, handle: QueueHandle, job_ids: Sequence[str], column: pa.Array) -> FollowUps:
        """Reads and checks the follow-ups of these jobs, one row each. Invalid ones do not affect other rows."""
        try:
            return FollowUps(self._encoded(handle, job_ids, column), {})
        except (OptionError, DialectError) as error:
            if len(job_ids) == 1:
                return FollowUps({}, {job_ids[0]: f"column `{THEN}`: {error}"})
        parts = [self.read(handle, [job_id], column.slice(row, 1)) for row, job_id in enumerate(job_ids)]
        return FollowUps(
            {job_id: jobs for part in parts for job_id, jobs in part.valid.items()},
            {job_id: error for part in parts for job_id, error in part.errors.items()},
        )

    def _encoded(self, handle: QueueHandle, job_ids: Sequence[str], column: pa.Array) -> dict[str, list[FollowUp]]:
        jobs, rows = pc.list_flatten(column), pc.list_parent_indices(column)
        given = pc.is_valid(jobs)
        jobs, rows = jobs.filter(given), rows.filter(given)
        if not len(jobs):
            return {}
        self.rows.check_dialect(handle.dialect)
        arrays = dict(zip(jobs.type, jobs.flatten(), strict=True))
        ons = [None] * len(jobs)
        if self.on is not None:
            ons = arrays.pop(jobs.type.field(self.on)).to_pylist()
        properties = self.rows.rows(
            pa.RecordBatch.from_arrays([*arrays.values()], schema=pa.schema([*arrays])), range(len(jobs))
        )
        queues = properties.pop(QUEUE, [None] * len(jobs))
        of = [job_ids[row] for row in rows.to_pylist()]
        by_job: dict[str, list[FollowUp]] = defaultdict(list)
        for one in encode_follow_ups(handle, properties, of, queues, ["success" if on is None else on for on in ons]):
            by_job[one.of].append(one)
        for follow_ups in by_job.values():
            check_bounds(follow_ups)
        return by_job


def plan_follow_ups(column: StructField) -> FollowUpPlan:
    """Checks the type of the column. Raises OptionError."""
    kind = column.dataType
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        raise OptionError(
            f"expected column `{column.name}` to be ARRAY<STRUCT<data, …>>, got: {kind.simpleString().upper()}"
        )
    fields = kind.elementType.fields
    ons = [index for index, field in enumerate(fields) if field.name.lower() == _ON]
    for index in ons:
        if not isinstance(fields[index].dataType, StringType):
            got = fields[index].dataType.simpleString().upper()
            raise OptionError(f"expected the field `{_ON}` of column `{column.name}` to be STRING, got: {got}")
    try:
        rows = plan_fields(StructType([field for index, field in enumerate(fields) if index not in ons]))
    except OptionError as error:
        raise OptionError(f"column `{column.name}`: {error}") from None
    return FollowUpPlan(rows, ons[0] if ons else None)
