"""The sink of mode=limits: rows set limits of groups of jobs, or remove them.

Tasks check the rows, and send them to the driver with their commit messages: to set a limit twice changes nothing, so
there is nothing to stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import IntegralType, StructType

from spark_bull.core.errors import OptionError
from spark_bull.core.options.parse import parse_options
from spark_bull.core.options.table import LimitsOptions
from spark_bull.core.queue.handle.handle import open_handle
from spark_bull.core.queue.manage.limits import GroupChange, change_groups, checked_name, given_limits
from spark_bull.spark.platform.lazy_arrow import pa
from spark_bull.spark.staging.columns import MS, TEXT, ColumnRule, column, column_indexes, column_values, errors_of_row
from spark_bull.spark.staging.sink import Sink, refuse_overwrite

_JOBS: Final = column("an integer", IntegralType)
_COLUMNS: Final[Mapping[str, ColumnRule]] = {"group": TEXT, "max": _JOBS, "duration": MS, "concurrency": _JOBS}


@dataclass(frozen=True)
class LimitsPlan:
    """Picklable. columns: their indexes."""

    options: LimitsOptions
    columns: Mapping[str, int]


@dataclass(frozen=True)
class CheckedLimits(WriterCommitMessage):
    """The rows of a task."""

    changes: Sequence[GroupChange]


def limits_sink(
    raw: Mapping[str, str], schema: StructType, overwrite: bool, *, is_stream: bool
) -> Sink[LimitsPlan, CheckedLimits]:
    """Plans a write with mode=limits. Raises OptionError, DialectError or ConnectionLost before any task starts."""
    if overwrite:
        raise refuse_overwrite("mode=limits sets limits of the groups in its rows", is_stream=is_stream)
    options = parse_options(raw, LimitsOptions)
    columns = column_indexes(schema, _COLUMNS, " with mode=limits: drop it")
    if "group" not in columns:
        raise OptionError("expected a column `group` with mode=limits, got none: it names the group of jobs")
    if ("max" in columns) != ("duration" in columns):
        raise OptionError("expected columns `max` and `duration` together with mode=limits, got one of them")
    if len(columns) == 1:
        raise OptionError("expected a column `concurrency`, or `max` and `duration`, with mode=limits, got none")
    if options.queue is None:
        raise OptionError("expected an option `queue` with mode=limits, got none")
    handle = open_handle(options, options.queue)
    handle.connection.check(options.prefix, [options.queue], write=True)
    return Sink(LimitsPlan(options, columns), check_rows, set_limits)


def check_rows(plan: LimitsPlan, batches: Iterator[pa.RecordBatch]) -> CheckedLimits:
    """Checks the rows of a task. Raises OptionError."""
    changes: list[GroupChange] = []
    for batch in batches:
        numbers = range(len(changes), len(changes) + batch.num_rows)
        columns = {name: column_values(batch, index, name, numbers) for name, index in plan.columns.items()}
        for number, group, *limits in zip(numbers, columns.pop("group"), *columns.values(), strict=True):
            with errors_of_row(number):
                changes.append(_change_of(group, dict(zip(columns, limits, strict=True))))
    return CheckedLimits(changes)


def _change_of(group: object, row: Mapping[str, int | None]) -> GroupChange:
    """What a row changes: its NULLs remove limits."""
    name, limits = checked_name(group), {}
    if any(value is not None for value in row.values()):
        limits = given_limits(row, "duration")
    removed = [_field(name) for name, value in row.items() if value is None]
    return GroupChange(name, {_field(name): value for name, value in limits.items()}, removed)


def _field(column: str) -> str:
    return "duration_ms" if column == "duration" else column


def set_limits(plan: LimitsPlan, checked: Sequence[CheckedLimits]) -> None:
    """Changes the limits. Raises OptionError if two rows name the same group; then nothing was changed."""
    changes = [change for one in checked for change in one.changes]
    seen: set[str] = set()
    for change in changes:
        if change.group in seen:
            raise OptionError(
                f"expected each `group` once, got {change.group!r} twice: keep one of the rows, as their order is not "
                "defined"
            )
        seen.add(change.group)
    assert plan.options.queue is not None
    change_groups(open_handle(plan.options, plan.options.queue), changes)
