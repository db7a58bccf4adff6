"""The plan of a write of job schedulers: checks the columns of the DataFrame, and converts Arrow batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.types import IntegralType, StringType, StructType, TimestampType

from spark_bull.core.dialects.base import Dialect
from spark_bull.core.errors import OptionError
from spark_bull.core.options.table import ScheduleOptions
from spark_bull.core.queue.dispatch.write_records import SCHEDULERS, Fields
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.spark.platform.lazy_arrow import pa
from spark_bull.spark.staging.columns import (
    JSON,
    JSON_OBJECT,
    QUEUE,
    TEXT,
    ColumnRule,
    check_json_types,
    column,
    column_indexes,
    column_values,
)
from spark_bull.spark.staging.plan import StagedPlan, TaskPart

_TIME: Final = column("TIMESTAMP, or an integer (ms since 1970)", TimestampType, IntegralType)
_INTERVAL: Final = column("an integer (ms), or STRING holding a duration such as PT15M", IntegralType, StringType)
_COLUMNS: Final[Mapping[str, ColumnRule]] = {
    "id": TEXT,
    QUEUE: TEXT,
    "every": _INTERVAL,
    "pattern": TEXT,
    "tz": TEXT,
    "name": TEXT,
    "data": JSON,
    "limit": column("an integer", IntegralType),
    "offset": _INTERVAL,
    "startDate": _TIME,
    "endDate": _TIME,
    "opts": JSON_OBJECT,
}
_JSON: Final = ("data", "opts")


@dataclass(frozen=True)
class ScheduleRows:
    """Indexes of the columns."""

    columns: Mapping[str, int]

    def rows(self, batch: pa.RecordBatch, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """The rows of a batch by the names of the columns. numbers: row numbers, for errors."""
        columns = {
            name: column_values(batch, index, name, numbers, is_json=name in _JSON)
            for name, index in self.columns.items()
        }
        return [{name: values[position] for name, values in columns.items()} for position in range(batch.num_rows)]


def plan_rows(schema: StructType, options: ScheduleOptions) -> ScheduleRows:
    """Checks the columns of a DataFrame. Raises OptionError."""
    columns = column_indexes(schema, _COLUMNS, " with mode=schedule: drop it, or move it into `data`")
    check_json_types(schema, [columns[name] for name in _JSON if name in columns])
    if "id" not in columns:
        raise OptionError("expected a column `id` with mode=schedule, got none: it names the job scheduler")
    if "every" not in columns and "pattern" not in columns:
        raise OptionError("expected a column `every` (ms) or `pattern` (cron) with mode=schedule, got neither")
    if options.queue is not None:
        columns.pop(QUEUE, None)
    elif QUEUE not in columns:
        raise OptionError("expected an option `queue`, or a column `queue`, got neither")
    return ScheduleRows(columns)


@dataclass(frozen=True, kw_only=True)
class SchedulePlan(StagedPlan[ScheduleRows]):
    options: ScheduleOptions

    def fields(self, handle: QueueHandle, parts: Sequence[TaskPart]) -> Fields:
        return SCHEDULERS.fields()

    def check_dialect(self, dialect: Dialect) -> None:
        dialect.require("schedulers")
