"""Maps the columns of a DataFrame to schedules: checks the schema and converts Arrow batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.types import (
    IntegralType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from spark_bull.errors import OptionError
from spark_bull.options.parse import Options
from spark_bull.spark.dispatch.rows import milliseconds_of
from spark_bull.spark.json.json_text import check_json, to_json
from spark_bull.spark.platform.lazy_arrow import pa
from spark_bull.spark.staging.columns import JSON, TEXT, Column, check_json_columns, column_indexes
from spark_bull.spark.staging.queue_rows import QUEUE

_MS: Final = Column((IntegralType,), "an integer (ms)")
_TIME: Final = Column((TimestampType, IntegralType), "TIMESTAMP, or an integer (ms since 1970)")
_COLUMNS: Final[Mapping[str, Column]] = {
    "id": TEXT,
    QUEUE: TEXT,
    "every": _MS,
    "pattern": TEXT,
    "tz": TEXT,
    "name": TEXT,
    "data": JSON,
    "limit": Column((IntegralType,), "an integer"),
    "offset": _MS,
    "startDate": _TIME,
    "endDate": _TIME,
    "opts": Column((StringType, StructType, MapType), "STRING holding a JSON object, STRUCT or MAP"),
}
_JSON: Final = ("data", "opts")


@dataclass(frozen=True)
class ScheduleRows:
    """Indexes of the columns. tz: default of the column `tz`."""

    columns: Mapping[str, int]
    tz: str | None

    def rows(self, batch: pa.RecordBatch, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """The rows of a batch by the names of the columns. numbers: those of the rows, for errors."""
        columns = {name: _values(name, batch, index, numbers) for name, index in self.columns.items()}
        rows = [{name: column[position] for name, column in columns.items()} for position in range(batch.num_rows)]
        if self.tz is not None:
            for row in rows:
                if row.get("tz") is None:
                    row["tz"] = self.tz
        return rows


def _values(name: str, batch: pa.RecordBatch, index: int, numbers: Sequence[int]) -> list[Any]:
    array, field = batch.column(index), batch.schema.field(index)
    if name in _JSON and not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        array = to_json(array, field, ignore_nulls=True)
    elif name in _JSON:
        check_json(array, name, numbers)
    elif pa.types.is_timestamp(array.type):
        return milliseconds_of(array)
    values: list[Any] = array.to_pylist()
    return values


def plan_rows(schema: StructType, options: Options) -> ScheduleRows:
    """Checks the columns of a DataFrame. Raises OptionError."""
    columns = column_indexes(schema, _COLUMNS, "with mode=schedule: drop it, or move it into `data`")
    check_json_columns(schema, columns, _JSON)
    if "id" not in columns:
        raise OptionError("expected a column `id` with mode=schedule, got none: it names the schedule")
    if "every" not in columns and "pattern" not in columns:
        raise OptionError("expected a column `every` (ms) or `pattern` (cron) with mode=schedule, got neither")
    if options[QUEUE] is not None:
        columns.pop(QUEUE, None)
    elif QUEUE not in columns:
        raise OptionError("expected an option `queue`, or a column `queue`, got neither")
    return ScheduleRows(columns, options["tz"])
