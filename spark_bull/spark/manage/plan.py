"""The plan of a write that changes jobs: checks the columns of the DataFrame, and converts Arrow batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.types import BooleanType, IntegralType, StringType, StructType

from spark_bull.core.dialects.base import Dialect
from spark_bull.core.dialects.changes import ACTIONS, action_of
from spark_bull.core.errors import OptionError
from spark_bull.core.options.table import ManageOptions
from spark_bull.core.queue.dispatch.write_records import CHANGES, Fields
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.spark.platform.lazy_arrow import pa
from spark_bull.spark.schemas import SCHEMAS
from spark_bull.spark.staging.columns import (
    JSON,
    MS,
    QUEUE,
    TEXT,
    ColumnRule,
    check_json_types,
    column,
    column_indexes,
    column_values,
)
from spark_bull.spark.staging.plan import StagedPlan, TaskPart

_COLUMNS: Final[Mapping[str, ColumnRule]] = {
    "id": column("STRING, or an integer", StringType, IntegralType),
    QUEUE: TEXT,
    "action": TEXT,
    "data": JSON,
    "delay": MS,
    "priority": column("an integer, or STRING with a name of one", IntegralType, StringType),
    "lifo": column("BOOLEAN", BooleanType),
    "resetAttempts": column("BOOLEAN", BooleanType),
    "state": TEXT,
    "failedReason": TEXT,
    "returnvalue": JSON,
    "to": TEXT,
}
#: Columns of jobs as they are read, which are ignored.
_IGNORED: Final = frozenset(field.name.lower() for field in SCHEMAS["jobs"])
_PAYLOADS: Final = ("data", "returnvalue")


@dataclass(frozen=True)
class ChangeRows:
    """Indexes of the columns. action: of rows without one."""

    columns: Mapping[str, int]
    action: str | None

    def rows(self, batch: pa.RecordBatch, numbers: Sequence[int]) -> dict[str, list[Any]]:
        """The values of a batch by column. numbers: row numbers, for errors."""
        rows = {
            name: column_values(batch, index, name, numbers, is_json=name in _PAYLOADS)
            for name, index in self.columns.items()
        }
        given = rows.get("action", [None] * batch.num_rows)
        rows["action"] = [self.action if action is None else action for action in given]
        return rows


def plan_rows(schema: StructType, options: ManageOptions) -> ChangeRows:
    """Checks the columns of a DataFrame. Raises OptionError."""
    columns = column_indexes(schema, _COLUMNS, " with mode=manage: drop it", _IGNORED)
    check_json_types(schema, [columns[name] for name in _PAYLOADS if name in columns])
    if "id" not in columns:
        raise OptionError("expected a column `id` with mode=manage, got none: it names the job that is changed")
    for name in ("action", QUEUE):
        if name not in columns and options.value(name) is None:
            raise OptionError(f"expected an option `{name}`, or a column `{name}`, got neither")
    _check_needs(columns, options.action)
    if options.queue is not None:
        columns.pop(QUEUE, None)
    return ChangeRows(columns, options.action)


def _check_needs(columns: Mapping[str, int], action: str | None) -> None:
    """Raises OptionError if the action of all rows needs a column that is missing."""
    if "action" in columns or action is None or action not in ACTIONS:
        return
    for name in ACTIONS[action].needs:
        if name not in columns:
            raise OptionError(f"expected a column `{name}` for the action {action}, got none")


@dataclass(frozen=True, kw_only=True)
class ManagePlan(StagedPlan[ChangeRows]):
    options: ManageOptions
    adds = False

    def fields(self, handle: QueueHandle, parts: Sequence[TaskPart]) -> Fields:
        moved_to = {queue for part in parts for queue in part.flow_queues}
        keeps = {} if self.options.result_path is None else {"outcomes": 1}
        return {**CHANGES.fields(moved_to), **keeps}

    def check_dialect(self, dialect: Dialect) -> None:
        if self.options.action is not None:
            action_of(dialect, self.options.action)
