"""The column `children`: jobs for which the job of the row waits.

It is an ARRAY of STRUCTs. The fields of a STRUCT are `data` and settings of the job, by the names and types of columns;
`queue` (default: that of the parent); `onFailure`: what becomes of the parent when the job fails; and `children`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from spark_bull.dialects.encode.flows import Labels, Level
from spark_bull.errors import OptionError
from spark_bull.spark.dispatch.rows import CHILDREN, RowPlan, plan_fields
from spark_bull.spark.platform.lazy_arrow import pa, pc
from spark_bull.spark.staging.queue_rows import QUEUE

_ON_FAILURE: Final = "onFailure"


@dataclass(frozen=True)
class ChildrenPlan:
    """How to read the column. rows: the other fields of a STRUCT. on_failure, children: the indexes of these fields;
    None: absent. below: how to read the field `children`.
    """

    rows: RowPlan
    on_failure: int | None
    children: int | None
    below: ChildrenPlan | None


def plan_children(column: StructField) -> ChildrenPlan:
    """Checks the type of the column. Raises OptionError."""
    kind = column.dataType
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        got = kind.simpleString().upper()
        raise OptionError(f"expected `{column.name}` to be ARRAY<STRUCT<data, …>>, got: {got}")
    fields = kind.elementType.fields
    by_name = {field.name.lower(): index for index, field in enumerate(fields)}
    on_failure, children = by_name.get(_ON_FAILURE.lower()), by_name.get(CHILDREN)
    if on_failure is not None and not isinstance(fields[on_failure].dataType, StringType):
        got = fields[on_failure].dataType.simpleString().upper()
        raise OptionError(f"column `{column.name}`: expected the field `{_ON_FAILURE}` to be STRING, got: {got}")
    others = [field for index, field in enumerate(fields) if index not in (on_failure, children)]
    try:
        rows = plan_fields(StructType(others))
        below = None if children is None else plan_children(fields[children])
    except OptionError as error:
        raise OptionError(f"column `{column.name}`: {error}") from None
    return ChildrenPlan(rows, on_failure, children, below)


def levels_of(
    plan: ChildrenPlan, rows: dict[str, list[Any]], queue: str, children: pa.Array, numbers: Sequence[int]
) -> list[Level]:
    """The flows whose first jobs have the properties `rows`, and belong to `queue`. numbers: those of the rows."""
    levels = [Level(rows, [queue] * len(numbers))]
    below: ChildrenPlan | None = plan
    array: pa.Array | None = children
    while below is not None and array is not None:
        jobs, parents = pc.list_flatten(array), pc.list_parent_indices(array)
        given = pc.is_valid(jobs)
        jobs, positions = jobs.filter(given), parents.filter(given).to_pylist()
        if not positions:
            break
        labels = Labels([*(level.parents for level in levels[1:]), positions], numbers)
        level, array = _level(below, jobs, positions, levels[-1].queues, labels)
        levels.append(level)
        below = below.below
    return levels


def _level(
    plan: ChildrenPlan, jobs: pa.Array, parents: list[int], queues_above: Sequence[str], labels: Labels
) -> tuple[Level, pa.Array | None]:
    """The jobs as a level, and the field `children`."""
    arrays = jobs.flatten()
    children = None if plan.children is None else arrays[plan.children]
    policies: list[str | None] = []
    if plan.on_failure is not None:
        policies = arrays[plan.on_failure].to_pylist()
    others = [index for index in range(len(arrays)) if index not in (plan.on_failure, plan.children)]
    schema = pa.schema([jobs.type.field(index) for index in others])
    batch = pa.RecordBatch.from_arrays([arrays[index] for index in others], schema=schema)
    rows = plan.rows.rows(batch, labels)
    own = rows.pop(QUEUE, [None] * len(parents))
    queues = [queue or queues_above[parent] for queue, parent in zip(own, parents, strict=True)]
    return Level(rows, queues, parents, policies), children
