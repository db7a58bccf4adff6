"""Maps the columns of a DataFrame to the payload and settings of jobs: checks the schema and converts Arrow batches."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    IntegralType,
    StringType,
    StructType,
    TimestampType,
)

from spark_bull.core.dialects.base import Dialect
from spark_bull.core.dialects.terms import (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    DEDUPLICATION,
    DEDUPLICATION_MEMBERS,
    DELIVERY,
    EXPIRE_AFTER_MS,
    EXPIRE_AT,
    LOCK_MS,
    PARENT,
    PARENT_MEMBERS,
    SPREAD_MS,
)
from spark_bull.core.errors import OptionError, did_you_mean
from spark_bull.core.options.table import WriteOptions
from spark_bull.spark.json.json_text import to_json, to_json_arrays
from spark_bull.spark.json.types import PayloadCheck, payload_check
from spark_bull.spark.platform.lazy_arrow import pa
from spark_bull.spark.schemas import NO_TABLES
from spark_bull.spark.staging.columns import (
    JSON,
    JSON_OBJECT,
    MS,
    QUEUE,
    TEXT,
    ColumnRule,
    check_json_types,
    column,
    column_indexes,
    column_values,
)

log = logging.getLogger("spark_bull")

#: Larger batches are processed in slices, to limit memory.
SLICE_BYTES: Final = 32 << 20

DATA: Final = "data"
CHILDREN: Final = "children"
#: The column with the ids of the jobs that the job of the row depends on.
DEPENDS_ON: Final = "dependsOn"
#: Name of the keys of sequences in rows; no column has it.
SEQUENCE: Final = "sequenceBy"
#: Name of the keys of shards in rows; no column has it.
SHARD: Final = "shardBy"
_ID_COLUMN: Final = "jobIdColumn"
#: Columns with JSON.
_JSON: Final = (DATA, "opts")

#: Types of the fields of a STRUCT `deduplication`; the others are BOOLEAN.
_DEDUPLICATION: Final = dict.fromkeys(DEDUPLICATION_MEMBERS, (BooleanType,)) | {
    "id": (StringType, IntegralType),
    "ttl": (IntegralType,),
    "maxDelay": (IntegralType,),
    "deferrableBy": (IntegralType,),
}


def _is_deduplication(kind: DataType) -> bool:
    if not isinstance(kind, StructType):
        return isinstance(kind, StringType)
    return "id" in kind.names and all(isinstance(f.dataType, _DEDUPLICATION.get(f.name, ())) for f in kind.fields)


def _is_parent(kind: DataType) -> bool:
    return (
        isinstance(kind, StructType)
        and {"queue", "id"} <= set(kind.names) <= set(PARENT_MEMBERS)
        and all(isinstance(f.dataType, (StringType, IntegralType) if f.name == "id" else StringType) for f in kind)
    )


_KEEP: Final = column("BOOLEAN, an integer, or STRUCT<age, count>", BooleanType, IntegralType, StructType)
_COLUMNS: Final[Mapping[str, ColumnRule]] = {
    DATA: JSON,
    "name": TEXT,
    "jobId": column("STRING, or an integer (not for bullmq)", StringType, IntegralType),
    "delay": MS,
    "runAt": column("TIMESTAMP", TimestampType),
    "timestamp": column("TIMESTAMP, or an integer (ms since 1970)", TimestampType, IntegralType),
    "priority": column("an integer, or STRING with a name of one", IntegralType, StringType),
    "attempts": column("an integer", IntegralType),
    "backoff": column("an integer (ms), or STRUCT<type, delay, jitter>", IntegralType, StructType),
    "lifo": column("BOOLEAN", BooleanType),
    "removeOnComplete": _KEEP,
    "removeOnFail": _KEEP,
    EXPIRE_AFTER_MS: MS,
    EXPIRE_AT: column("TIMESTAMP", TimestampType),
    SPREAD_MS: MS,
    DELIVERY: TEXT,
    LOCK_MS: MS,
    DEDUPLICATION: ColumnRule(
        "STRING, or STRUCT<id, ttl, extend, replace, maxDelay, reschedule, keepLastIfActive, deferrableBy>, of which "
        "`id` is required (`ttl`, `maxDelay` and `deferrableBy` are integers, the others BOOLEAN)",
        _is_deduplication,
    ),
    PARENT: ColumnRule(
        "STRUCT<queue, id, onFailure>, of which `queue` and `id` are required (all STRING, `id` may be an integer)",
        _is_parent,
    ),
    QUEUE: TEXT,
    CHILDREN: ColumnRule(
        "ARRAY<STRUCT<data, …>> of jobs for which the job waits",
        lambda kind: isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType),
    ),
    DEPENDS_ON: ColumnRule(
        "ARRAY<STRING> of ids of jobs of the same write",
        lambda kind: isinstance(kind, ArrayType) and isinstance(kind.elementType, StringType),
    ),
    "opts": JSON_OBJECT,
}
_BY_LOWER: Final = {name.lower(): name for name in _COLUMNS}


@dataclass(frozen=True)
class RowPlan:
    """What each column of a row is for, by its index.

    columns: settings and `data`, by name. payload: columns that form the payload. unique_by: columns whose values are
    the deduplication id. sequence_by, shard_by: columns whose values are the key of the job's sequence, or of its
    shard. integer_ids: name of the column of job ids if it has integers.
    """

    columns: Mapping[str, int]
    payload: tuple[int, ...] = ()
    unique_by: tuple[int, ...] = ()
    sequence_by: tuple[int, ...] = ()
    shard_by: tuple[int, ...] = ()
    payload_check: PayloadCheck | None = None
    integer_ids: str | None = None

    def check_dialect(self, dialect: Dialect) -> None:
        """Raises OptionError for a column type that the dialect does not accept, DialectError for a column."""
        if self.unique_by or DEDUPLICATION in self.columns:
            dialect.require("deduplication", "option `uniqueBy`" if self.unique_by else f"column `{DEDUPLICATION}`")
        for name in (PARENT, CHILDREN, DEPENDS_ON):
            if name in self.columns:
                dialect.require("flows", f"column `{name}`")
        if self.integer_ids is not None and not dialect.has("integer-ids"):
            raise OptionError(
                f"expected column `{self.integer_ids}` to be STRING (a custom id of {dialect.name} may not be an "
                f"integer), got integers: add a prefix, for example concat('id-', {self.integer_ids})"
            )

    def check_delivery(self, options: WriteOptions) -> None:
        """Raises OptionError for jobs that may run at most once if a repeated task would add them again."""
        if DELIVERY in self.columns and options.delivery == AT_LEAST_ONCE:
            raise OptionError(
                f"expected no column `{DELIVERY}` with the option `{DELIVERY}` {AT_LEAST_ONCE}: a repeated task would "
                f"add a job of {AT_MOST_ONCE} twice; drop one of them"
            )

    def slices(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Splits a batch into slices of at most SLICE_BYTES, or one row."""
        rows = max(1, min(batch.num_rows, batch.num_rows * SLICE_BYTES // max(1, batch.nbytes)))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)

    def rows(self, batch: pa.RecordBatch, numbers: Sequence[int | str]) -> dict[str, list[Any]]:
        """Returns the properties of a batch's jobs for `codec.encode`, and `queue`, SEQUENCE and SHARD if any.

        numbers: row numbers, for errors.
        """
        rows = {
            name: column_values(batch, index, name, numbers, is_json=name in _JSON)
            for name, index in self.columns.items()
            if name != CHILDREN
        }
        if self.payload:
            fields = [batch.schema.field(i) for i in self.payload]
            whole = pa.StructArray.from_arrays([batch.column(i) for i in self.payload], fields=fields)
            field = pa.field(DATA, whole.type)
            rows[DATA] = to_json(whole, field, ignore_nulls=True).to_pylist()
        if self.payload_check:
            self.payload_check.check(rows[DATA], numbers)
        if self.unique_by:
            rows[DEDUPLICATION] = self._json_arrays(batch, self.unique_by)
        if self.sequence_by:
            rows[SEQUENCE] = self._json_arrays(batch, self.sequence_by)
        if self.shard_by:
            rows[SHARD] = self._json_arrays(batch, self.shard_by)
        return rows

    def _json_arrays(self, batch: pa.RecordBatch, columns: Sequence[int]) -> list[str]:
        """The values of these columns, for each row the JSON text of an array."""
        arrays, fields = [batch.column(i) for i in columns], [batch.schema.field(i) for i in columns]
        return to_json_arrays(arrays, fields).to_pylist()  # type: ignore[no-any-return]


def plan_rows(schema: StructType, options: WriteOptions) -> RowPlan:
    """Maps the columns of a DataFrame to settings of jobs, case-insensitively.

    With a column `data`, all other columns are settings. Otherwise the whole row is the payload, except for the columns
    in the option `jobColumns`.

    Raises OptionError for a setting of a wrong type, a duplicate or unknown column, and if there is no payload or no
    queue. All columns in `jobColumns`, `jobIdColumn`, `uniqueBy`, `sequenceBy` and `shardBy` must exist.
    """
    columns, payload = (_beside_data(schema, options), ()) if _has_data(schema) else _whole_row(schema, options)
    columns |= _id_column(schema, options, columns)
    if options.queue is not None:
        columns.pop(QUEUE, None)
    elif QUEUE not in columns:
        raise _no_queue(schema, payload)
    unique_by = _unique_by(schema, options, columns)
    sequence_by = _indexes(schema, SEQUENCE, options.sequence_by)
    shard_by = _indexes(schema, SHARD, options.shard_by)
    check = payload_check(options.payload_schema)
    plan = RowPlan(columns, payload, unique_by, sequence_by, shard_by, check)
    return _plan(schema, plan)


def call_rows(schema: StructType) -> RowPlan:
    """The payload of each row, for `call`: the column `data`, or the whole row. Raises OptionError as `plan_rows`."""
    index = next((i for i, name in enumerate(schema.names) if name.lower() == DATA), None)
    if index is None:
        return _plan(schema, RowPlan({}, payload=tuple(range(len(schema)))))
    column_indexes(StructType([schema.fields[index]]), {DATA: JSON})
    return _plan(schema, RowPlan({DATA: index}))


def plan_fields(schema: StructType) -> RowPlan:
    """Maps the fields of a STRUCT with `data` to settings of jobs, as `plan_rows` does with columns."""
    if not _has_data(schema):
        raise OptionError(f"expected a field `data`, got: {_listed(schema.names)}")
    for name in schema.names:
        if name.lower() in (CHILDREN, DEPENDS_ON.lower()):
            raise OptionError(f"expected no field `{name}`: a flow can't be added here; drop it")
    return _plan(schema, RowPlan(_data_and_settings(schema)))


def _plan(schema: StructType, plan: RowPlan) -> RowPlan:
    """The plan, checked. Raises OptionError."""
    texts = (plan.columns[name] for name in _JSON if name in plan.columns)
    check_json_types(schema, [*plan.payload, *plan.unique_by, *plan.sequence_by, *plan.shard_by, *texts])
    ids = schema.fields[plan.columns["jobId"]] if "jobId" in plan.columns else None
    is_integer = ids is not None and isinstance(ids.dataType, IntegralType)
    return replace(plan, integer_ids=ids.name) if ids is not None and is_integer else plan


def _has_data(schema: StructType) -> bool:
    return any(field.name.lower() == DATA for field in schema.fields)


def _beside_data(schema: StructType, options: WriteOptions) -> dict[str, int]:
    """Maps every column to `data` or a setting."""
    if options.job_columns:
        raise OptionError(
            "option `jobColumns` is for a DataFrame without a column `data`: next to `data`, all columns are settings. "
            "Leave the option out, or rename `data` if it is part of the payload"
        )
    others = (*options.unique_by, *options.sequence_by, *options.shard_by, options.job_id_column or "")
    return _data_and_settings(schema, [name.lower() for name in others])


def _data_and_settings(schema: StructType, others: Collection[str] = ()) -> dict[str, int]:
    """Maps every column to `data` or a setting, except `others`, in lower case."""
    advice = ": next to `data`, columns are settings of the job; move it into `data` or drop it"
    return column_indexes(schema, _COLUMNS, advice, others)


def _id_column(schema: StructType, options: WriteOptions, columns: Mapping[str, int]) -> dict[str, int]:
    """Maps the column in `jobIdColumn` to the setting `jobId`."""
    name = options.job_id_column
    if name is None:
        return {}
    if "jobId" in columns:
        raise OptionError(f"expected one of `{_ID_COLUMN}` and a column `jobId`, got both: leave one out")
    (index,) = _indexes(schema, _ID_COLUMN, [name])
    column_indexes(StructType([schema.fields[index]]), {name: _COLUMNS["jobId"]})
    return {"jobId": index}


def _indexes(schema: StructType, option: str, named: Sequence[str]) -> tuple[int, ...]:
    """Returns the indexes of the columns that an option names."""
    by_name = {field.name.lower(): index for index, field in enumerate(schema.fields)}
    for name in named:
        if name.lower() not in by_name:
            raise OptionError(
                f"expected the DataFrame to have the columns in `{option}`, got no column `{name}`"
                f"{did_you_mean(name, schema.names)}, only: {_listed(schema.names)}"
            )
    return tuple(by_name[name.lower()] for name in named)


def _unique_by(schema: StructType, options: WriteOptions, columns: Mapping[str, int]) -> tuple[int, ...]:
    """Returns the indexes of the columns in `uniqueBy`."""
    named = _indexes(schema, "uniqueBy", options.unique_by)
    if named and DEDUPLICATION in columns:
        raise OptionError(f"expected one of `uniqueBy` and a column `{DEDUPLICATION}`, got both: leave one out")
    if not named and DEDUPLICATION not in columns:
        _check_ids(options)
    return named


def _check_ids(options: WriteOptions) -> None:
    """Raises OptionError for a rule of deduplication ids if no row has such an id."""
    rule = options.deduplication
    if isinstance(rule, Mapping) and "id" not in rule:
        raise OptionError(
            f"expected deduplication ids, as option `{DEDUPLICATION}` is set: use `uniqueBy`, or a column "
            f"`{DEDUPLICATION}`"
        )


def _whole_row(schema: StructType, options: WriteOptions) -> tuple[dict[str, int], tuple[int, ...]]:
    """Maps the columns in `jobColumns` to settings, and all others to the payload."""
    settings = {setting: _COLUMNS[setting] for setting in map(_setting_of, options.job_columns)}
    columns = column_indexes(schema, settings, ignored={name.lower() for name in schema.names})
    payload = tuple(index for index in range(len(schema)) if index not in columns.values())
    for missing in sorted(settings.keys() - columns.keys()):
        raise OptionError(
            f"expected the DataFrame to have the columns in `jobColumns`, got no column `{missing}`, "
            f"only: {_listed(schema.names)}"
        )
    if not payload:
        raise OptionError(
            f"expected a column `data`, or columns that form the payload, got only: {_listed(schema.names)}"
        )
    if "jobColumns" not in options.given:
        _warn_of_settings(tuple(name for name in schema.names if name.lower() in _BY_LOWER))
    return columns, payload


def _setting_of(named: str) -> str:
    """Returns the setting of a name in `jobColumns`."""
    setting = _BY_LOWER.get(named.lower())
    if setting in (None, DATA):
        settings = [name for name in _BY_LOWER.values() if name != DATA]
        raise OptionError(
            f"expected `jobColumns` to list some of the settings {', '.join(settings)}, got: {named!r}"
            f"{did_you_mean(named, settings)}"
        )
    return setting


def _no_queue(schema: StructType, payload: tuple[int, ...]) -> OptionError:
    if any(schema.fields[index].name.lower() == QUEUE for index in payload):
        return OptionError(
            "expected an option `queue`, got none: without a column `data` the column `queue` is part of the payload "
            "unless the option `jobColumns` has it"
        )
    return OptionError(f"expected an option `queue`, or a column `queue`, got neither. If this is a table: {NO_TABLES}")


@cache
def _warn_of_settings(names: tuple[str, ...]) -> None:
    """Logs once per process that columns named like settings are part of the payload."""
    if names:
        log.warning(
            "without a column `data` the whole row is the payload, including the columns %s: list those that are "
            "settings of the job in the option `jobColumns` (it may be empty)",
            _listed(names),
        )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"
