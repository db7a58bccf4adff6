"""The column `children`: jobs for which the job of the row waits.

Further fields of its STRUCTs are `queue` (default: that of the parent); `onFailure`: what becomes of the parent when
the job fails; and `children`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from spark_bull.core.dialects.encode.flows import Labels, Level
from spark_bull.spark.dispatch.jobs_column import JobsColumn, jobs_in
from spark_bull.spark.dispatch.rows import CHILDREN
from spark_bull.spark.platform.lazy_arrow import pa
from spark_bull.spark.staging.queue_rows import QUEUE

ON_FAILURE: Final = "onFailure"


def levels_of(
    plan: JobsColumn, rows: dict[str, list[Any]], queue: str, children: pa.Array, numbers: Sequence[int]
) -> list[Level]:
    """The flows whose first jobs have the properties `rows`, and belong to `queue`. numbers: row numbers."""
    levels = [Level(rows, [queue] * len(numbers))]
    below: JobsColumn | None = plan
    array: pa.Array | None = children
    while below is not None and array is not None:
        jobs, parents = jobs_in(array)
        if not parents:
            break
        labels = Labels([*(level.parents for level in levels[1:]), parents], numbers)
        properties, others = below.read(jobs, labels)
        own, above = properties.pop(QUEUE, [None] * len(parents)), levels[-1].queues
        queues = [name or above[parent] for name, parent in zip(own, parents, strict=True)]
        policies = others[ON_FAILURE].to_pylist() if ON_FAILURE in others else []
        levels.append(Level(properties, queues, parents, policies))
        array, below = others.get(CHILDREN), below.below
    return levels
