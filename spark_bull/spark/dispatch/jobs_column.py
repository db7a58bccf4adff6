"""A column of jobs: an ARRAY of STRUCTs. Their fields are `data` and settings of the job, with names and types of
columns.

Other fields say what the job is to the job of the row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from spark_bull.core.errors import OptionError
from spark_bull.spark.dispatch.rows import RowPlan, plan_fields
from spark_bull.spark.platform.lazy_arrow import pa, pc


@dataclass(frozen=True)
class JobsColumn:
    """How to read the column. rows: the properties of the jobs. others: the indexes of the other fields. below: how to
    read the field `children`; None: it is absent.
    """

    rows: RowPlan
    others: Mapping[str, int]
    below: JobsColumn | None

    def read(
        self, jobs: pa.StructArray, numbers: Sequence[int | str]
    ) -> tuple[dict[str, list[Any]], dict[str, pa.Array]]:
        """The properties of jobs, and the other fields. numbers: of the jobs, for errors."""
        arrays = jobs.flatten()
        own = [index for index in range(len(arrays)) if index not in self.others.values()]
        schema = pa.schema([jobs.type.field(index) for index in own])
        batch = pa.RecordBatch.from_arrays([arrays[index] for index in own], schema=schema)
        return self.rows.rows(batch, numbers), {name: arrays[index] for name, index in self.others.items()}


def jobs_in(column: pa.Array) -> tuple[pa.StructArray, list[int]]:
    """The jobs of all rows, without NULLs, and the positions of their rows."""
    jobs, rows = pc.list_flatten(column), pc.list_parent_indices(column)
    given = pc.is_valid(jobs)
    return jobs.filter(given), rows.filter(given).to_pylist()


def plan_jobs(column: StructField, word: str, nested: str | None = None) -> JobsColumn:
    """Checks the type of the column. Raises OptionError.

    word: the name of a STRING field beside the properties. nested: of a field like this column.
    """
    kind = column.dataType
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        got = kind.simpleString().upper()
        raise OptionError(f"expected column `{column.name}` to be ARRAY<STRUCT<data, …>>, got: {got}")
    fields = kind.elementType.fields
    names = {name.lower(): name for name in (word, nested) if name is not None}
    others = {names[field.name.lower()]: i for i, field in enumerate(fields) if field.name.lower() in names}
    if word in others and not isinstance(fields[others[word]].dataType, StringType):
        got = fields[others[word]].dataType.simpleString().upper()
        raise OptionError(f"expected the field `{word}` of column `{column.name}` to be STRING, got: {got}")
    try:
        rows = plan_fields(StructType([field for i, field in enumerate(fields) if i not in others.values()]))
        below = plan_jobs(fields[others[nested]], word, nested) if nested in others else None
    except OptionError as error:
        raise OptionError(f"column `{column.name}`: {error}") from None
    return JobsColumn(rows, others, below)
