"""Maps the columns of a DataFrame to the payload and settings of jobs: checks the schema and converts Arrow batches."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    IntegralType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from spark_bull.dialects.base import Dialect
from spark_bull.dialects.deduplication import MEMBERS
from spark_bull.dialects.deduplication import NAME as DEDUPLICATION
from spark_bull.dialects.encode.codec import NAMES
from spark_bull.dialects.parents import MEMBERS as PARENT_MEMBERS
from spark_bull.dialects.parents import NAME as PARENT
from spark_bull.dialects.terms import AT_LEAST_ONCE, AT_MOST_ONCE, DELIVERY, EXPIRE_AFTER, EXPIRE_AT, LOCK_MS, SPREAD_MS
from spark_bull.errors import OptionError, did_you_mean
from spark_bull.options.parse import Options
from spark_bull.spark.json.json_text import check_json, is_encodable, to_json, to_json_arrays
from spark_bull.spark.platform.lazy_arrow import pa, pc
from spark_bull.spark.staging.queue_rows import QUEUE

log = logging.getLogger("spark_bull")

#: Larger batches are processed in slices, to limit memory.
SLICE_BYTES: Final = 32 << 20

DATA: Final = "data"
CHILDREN: Final = "children"
#: Name of the keys of sequences in rows; no column has it.
SEQUENCE: Final = "sequenceBy"
_NESTED: Final = (StructType, MapType, ArrayType, VariantType)


@dataclass(frozen=True)
class _Rule:
    """The types that a column may have: a description and a check."""

    expected: str
    accepts: Callable[[DataType], bool]


def _one_of(expected: str, *types: type[DataType]) -> _Rule:
    return _Rule(expected, lambda kind: isinstance(kind, types))


#: Types of the fields of a STRUCT `deduplication`; the others are BOOLEAN.
_DEDUPLICATION: Final = dict.fromkeys(MEMBERS, (BooleanType,)) | {
    "id": (StringType, IntegralType),
    "ttl": (IntegralType,),
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


_RULES: Final[dict[str, _Rule]] = {
    DATA: _one_of("STRUCT, MAP, ARRAY, VARIANT, or STRING holding JSON", StringType, *_NESTED),
    "name": _one_of("STRING", StringType),
    QUEUE: _one_of("STRING", StringType),
    "jobId": _one_of("STRING, or an integer (not for bullmq)", StringType, IntegralType),
    "delay": _one_of("an integer (ms)", IntegralType),
    "runAt": _one_of("TIMESTAMP", TimestampType),
    "timestamp": _one_of("TIMESTAMP, or an integer (ms since 1970)", TimestampType, IntegralType),
    "priority": _one_of("an integer, or STRING with a name of one", IntegralType, StringType),
    "attempts": _one_of("an integer", IntegralType),
    "backoff": _one_of("an integer (ms), or STRUCT<type, delay, jitter>", IntegralType, StructType),
    "lifo": _one_of("BOOLEAN", BooleanType),
    "removeOnComplete": _one_of("BOOLEAN, an integer, or STRUCT<age, count>", BooleanType, IntegralType, StructType),
    "removeOnFail": _one_of("BOOLEAN, an integer, or STRUCT<age, count>", BooleanType, IntegralType, StructType),
    EXPIRE_AFTER: _one_of("an integer (ms)", IntegralType),
    EXPIRE_AT: _one_of("TIMESTAMP", TimestampType),
    SPREAD_MS: _one_of("an integer (ms)", IntegralType),
    DELIVERY: _one_of("STRING", StringType),
    LOCK_MS: _one_of("an integer (ms)", IntegralType),
    DEDUPLICATION: _Rule(
        "STRING, or STRUCT<id, ttl, extend, replace, reschedule, keepLastIfActive, deferrableBy>, of which `id` is "
        "required (`ttl` and `deferrableBy` are integers, the others BOOLEAN)",
        _is_deduplication,
    ),
    PARENT: _Rule(
        "STRUCT<queue, id, onFailure>, of which `queue` and `id` are required (all STRING, `id` may be an integer)",
        _is_parent,
    ),
    CHILDREN: _Rule(
        "ARRAY<STRUCT<data, …>> of jobs for which the job waits",
        lambda kind: isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType),
    ),
    "opts": _one_of("STRING holding a JSON object, STRUCT or MAP", StringType, StructType, MapType),
}
_BY_LOWER: Final = {name.lower(): name for name in (*NAMES, QUEUE, CHILDREN)}


@dataclass(frozen=True)
class RowPlan:
    """Indexes of the columns that are settings or `data`.

    payload: those of the columns that form the payload. unique_by: those of the columns whose values are the
    deduplication id. sequence_by: those of the columns whose values are the key of the job's sequence.
    """

    columns: Mapping[str, int]
    payload: tuple[int, ...]
    unique_by: tuple[int, ...]
    sequence_by: tuple[int, ...]
    json_properties: frozenset[str]
    ignore_nulls: bool
    #: Name of the column `jobId` if it has integers.
    integer_ids: str | None = None

    def check_dialect(self, dialect: Dialect) -> None:
        """Raises OptionError for a column type that the dialect does not accept, DialectError for a column."""
        if self.unique_by or DEDUPLICATION in self.columns:
            dialect.require("deduplication", "option `uniqueBy`" if self.unique_by else f"column `{DEDUPLICATION}`")
        for name in (PARENT, CHILDREN):
            if name in self.columns:
                dialect.require("flows", f"column `{name}`")
        if self.integer_ids is not None and not dialect.has("integer-ids"):
            raise OptionError(
                f"expected column `{self.integer_ids}` to be STRING (a custom id of {dialect.name} may not be an "
                f"integer), got integers: add a prefix, for example concat('id-', {self.integer_ids})"
            )

    def check_delivery(self, options: Options) -> None:
        """Raises OptionError for jobs that may run at most once if a repeated task would add them again."""
        if DELIVERY in self.columns and options[DELIVERY] == AT_LEAST_ONCE:
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
        """Returns the properties of a batch's jobs for `codec.encode`, and `queue` and SEQUENCE if there are any.

        numbers: those of the rows, for errors.
        """
        rows = {
            name: self._property(name, batch.column(index), batch.schema.field(index), numbers)
            for name, index in self.columns.items()
            if name != CHILDREN
        }
        if self.payload:
            fields = [batch.schema.field(i) for i in self.payload]
            whole = pa.StructArray.from_arrays([batch.column(i) for i in self.payload], fields=fields)
            field = pa.field(DATA, whole.type)
            rows[DATA] = to_json(whole, field, ignore_nulls=self.ignore_nulls).to_pylist()
        if self.unique_by:
            rows[DEDUPLICATION] = self._json_arrays(batch, self.unique_by)
        if self.sequence_by:
            rows[SEQUENCE] = self._json_arrays(batch, self.sequence_by)
        return rows

    def _json_arrays(self, batch: pa.RecordBatch, columns: Sequence[int]) -> list[str]:
        """The values of these columns, for each row the JSON text of an array."""
        arrays, fields = [batch.column(i) for i in columns], [batch.schema.field(i) for i in columns]
        return to_json_arrays(arrays, fields, ignore_nulls=self.ignore_nulls).to_pylist()  # type: ignore[no-any-return]

    def _property(self, name: str, array: pa.Array, field: pa.Field, numbers: Sequence[int | str]) -> list[Any]:
        if name in self.json_properties:
            check_json(array, name, numbers)
            return array.to_pylist()  # type: ignore[no-any-return]
        if name in (DATA, "opts"):
            text = to_json(array, field, ignore_nulls=self.ignore_nulls)
            return text.to_pylist()  # type: ignore[no-any-return]
        if pa.types.is_timestamp(array.type):
            return milliseconds_of(array)
        if pa.types.is_struct(array.type):
            return [_without_nulls(value) for value in array.to_pylist()]
        return array.to_pylist()  # type: ignore[no-any-return]


def milliseconds_of(array: pa.Array) -> list[int | None]:
    """The values of a column of times, ms since 1970."""
    whole = pc.floor_temporal(array, unit="millisecond")
    return pc.cast(whole, pa.timestamp("ms", array.type.tz)).view(pa.int64()).to_pylist()  # type: ignore[no-any-return]


def _without_nulls(value: dict[str, Any] | None) -> dict[str, Any] | None:
    return value and {name: v for name, v in value.items() if v is not None}


def plan_rows(schema: StructType, options: Options) -> RowPlan:
    """Maps the columns of a DataFrame to settings of jobs, case-insensitively.

    With a column `data`, all other columns are settings. Otherwise the whole row is the payload, except for the columns
    in the option `jobColumns`.

    Raises OptionError for a setting of a wrong type, a duplicate or unknown column, a column of `jobColumns`,
    `uniqueBy` or `sequenceBy` that does not exist, and if there is no payload or no queue.
    """
    columns, payload = _beside_data(schema, options) if _has_data(schema) else _whole_row(schema, options)
    if options["queue"] is not None:
        columns.pop(QUEUE, None)
    elif QUEUE not in columns:
        raise _no_queue(schema, payload)
    unique_by = _unique_by(schema, options, columns)
    sequence_by = _indexes(schema, options, SEQUENCE)
    return _plan(schema, columns, payload, unique_by, sequence_by, ignore_nulls=options["ignoreNullFields"])


def plan_fields(schema: StructType) -> RowPlan:
    """Maps the fields of a STRUCT with `data` to settings of jobs, as `plan_rows` does with columns."""
    if not _has_data(schema):
        raise OptionError(f"expected a field `data`, got: {_listed(schema.names)}")
    for name in schema.names:
        if name.lower() == CHILDREN:
            raise OptionError(f"expected no field `{name}`: a flow can't be added here; drop it")
    return _plan(schema, _data_and_settings(schema), (), (), (), ignore_nulls=True)


def _plan(
    schema: StructType,
    columns: dict[str, int],
    payload: tuple[int, ...],
    unique_by: tuple[int, ...],
    sequence_by: tuple[int, ...],
    *,
    ignore_nulls: bool,
) -> RowPlan:
    texts = (name for name in (DATA, "opts") if name in columns)
    json_properties = frozenset(name for name in texts if isinstance(schema.fields[columns[name]].dataType, StringType))
    integer_ids = _integer_ids(schema, columns)
    plan = RowPlan(columns, payload, unique_by, sequence_by, json_properties, ignore_nulls, integer_ids)
    _check_encodable(schema, plan)
    return plan


def _integer_ids(schema: StructType, columns: Mapping[str, int]) -> str | None:
    field = schema.fields[columns["jobId"]] if "jobId" in columns else None
    return field.name if field is not None and isinstance(field.dataType, IntegralType) else None


def _has_data(schema: StructType) -> bool:
    return any(field.name.lower() == DATA for field in schema.fields)


def _beside_data(schema: StructType, options: Options) -> tuple[dict[str, int], tuple[int, ...]]:
    """Maps every column to `data` or a setting."""
    if options["jobColumns"]:
        raise OptionError(
            "option `jobColumns` is for a DataFrame without a column `data`: next to `data`, all columns are settings; "
            "leave the option out, or rename `data` if it is part of the payload"
        )
    others = (*options["uniqueBy"], *options[SEQUENCE])
    return _data_and_settings(schema, frozenset(name.lower() for name in others)), ()


def _data_and_settings(schema: StructType, others: frozenset[str] = frozenset()) -> dict[str, int]:
    """Maps every column to `data` or a setting, except `others`, in lower case."""
    columns: dict[str, int] = {}
    for index, field in enumerate(schema.fields):
        name = _BY_LOWER.get(field.name.lower())
        if name is None and field.name.lower() in others:
            continue
        if name is None:
            raise OptionError(
                f"unknown column `{field.name}`{did_you_mean(field.name, _BY_LOWER.values())}: next to `data`, "
                "columns are settings of the job; move it into `data` or drop it"
            )
        _add(columns, name, index, field)
    return columns


def _indexes(schema: StructType, options: Options, option: str) -> tuple[int, ...]:
    """Returns the indexes of the columns that an option names."""
    by_name = {field.name.lower(): index for index, field in enumerate(schema.fields)}
    named: tuple[str, ...] = options[option]
    for name in named:
        if name.lower() not in by_name:
            raise OptionError(
                f"expected the DataFrame to have the columns in `{option}`, got no column `{name}`"
                f"{did_you_mean(name, schema.names)}, only: {_listed(schema.names)}"
            )
    return tuple(by_name[name.lower()] for name in named)


def _unique_by(schema: StructType, options: Options, columns: Mapping[str, int]) -> tuple[int, ...]:
    """Returns the indexes of the columns in `uniqueBy`."""
    named = _indexes(schema, options, "uniqueBy")
    if named and DEDUPLICATION in columns:
        raise OptionError(f"expected one of `uniqueBy` and a column `{DEDUPLICATION}`, got both: leave one out")
    if not named and DEDUPLICATION not in columns:
        _check_ids(options)
    return named


def _check_ids(options: Options) -> None:
    """Raises OptionError for a rule of deduplication ids if no row has such an id."""
    rule = options[DEDUPLICATION]
    for name in ("uniqueFor", DEDUPLICATION):
        if name in options.given and (rule is None or (isinstance(rule, Mapping) and "id" not in rule)):
            raise OptionError(
                f"expected deduplication ids, as option `{name}` is set: use `uniqueBy`, or a column `{DEDUPLICATION}`"
            )


def _whole_row(schema: StructType, options: Options) -> tuple[dict[str, int], tuple[int, ...]]:
    """Maps the columns in `jobColumns` to settings, and all others to the payload."""
    settings = {_setting_of(named).lower() for named in options["jobColumns"]}
    columns: dict[str, int] = {}
    payload: list[int] = []
    for index, field in enumerate(schema.fields):
        if field.name.lower() in settings:
            _add(columns, _BY_LOWER[field.name.lower()], index, field)
        else:
            payload.append(index)
    for missing in sorted(settings - {name.lower() for name in columns}):
        raise OptionError(
            f"expected the DataFrame to have the columns in `jobColumns`, got no column `{_BY_LOWER[missing]}`, "
            f"only: {_listed(schema.names)}"
        )
    if not payload:
        raise OptionError(
            f"expected a column `data`, or columns that form the payload, got only: {_listed(schema.names)}"
        )
    if "jobColumns" not in options.given:
        _warn_of_settings(tuple(name for name in schema.names if name.lower() in _BY_LOWER))
    return columns, tuple(payload)


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


def _add(columns: dict[str, int], name: str, index: int, field: StructField) -> None:
    """Maps a column to the setting of this name, or to `data`."""
    if name in columns:
        raise OptionError(f"expected one column `{name}`, got two: drop or rename one")
    rule = _RULES[name]
    if not rule.accepts(field.dataType):
        kind = field.dataType.simpleString().upper()
        raise OptionError(f"expected column `{field.name}` to be {rule.expected}, got: {kind}; cast it")
    columns[name] = index


def _no_queue(schema: StructType, payload: tuple[int, ...]) -> OptionError:
    if any(schema.fields[index].name.lower() == QUEUE for index in payload):
        return OptionError(
            "expected an option `queue`, got none: without a column `data` the column `queue` is part of the payload "
            "unless the option `jobColumns` has it"
        )
    return OptionError(
        "expected an option `queue`, or a column `queue`, got neither. If this is a table of the catalog: Spark does "
        "not pass its OPTIONS to Python data sources; use CREATE TEMPORARY VIEW … USING bull OPTIONS (queue '…')"
    )


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


def _check_encodable(schema: StructType, plan: RowPlan) -> None:
    indexes = [
        *plan.payload,
        *plan.unique_by,
        *plan.sequence_by,
        *(i for n, i in plan.columns.items() if n in (DATA, "opts")),
    ]
    try:
        arrow = to_arrow_schema(StructType([schema.fields[i] for i in indexes]), timezone="UTC")
    except (TypeError, ValueError) as error:
        # For example array(), a non-nullable VOID that Arrow does not support.
        raise OptionError(f"expected columns of types that Arrow supports: {error}; cast VOID to a type") from None
    for field, index in zip(arrow, indexes, strict=True):
        if not is_encodable(field):
            kind = schema.fields[index].dataType.simpleString().upper()
            raise OptionError(
                f"expected column `{field.name}` to be of types that JSON can hold, got: {kind}; "
                "cast intervals to a number or a string, and VOID to a type"
            )
