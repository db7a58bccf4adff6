"""Checks the columns of a DataFrame against a table of known ones, reads their values, and splits rows by queue."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeAlias

from pyspark.sql.types import ArrayType, DataType, IntegralType, MapType, StringType, StructType, VariantType

from spark_bull.core.errors import OptionError, SparkBullError, did_you_mean, restated
from spark_bull.spark.json.json_text import check_json, is_encodable, is_text, ms_of, to_json
from spark_bull.spark.platform.arrow import to_arrow_schema
from spark_bull.spark.platform.lazy_arrow import pa


class ColumnRule(NamedTuple):
    """Which types a column may have, in words of SQL, and a check of one."""

    words: str
    accepts: Callable[[DataType], bool]


def column(words: str, *types: type[DataType]) -> ColumnRule:
    """A column that may have one of these types."""
    return ColumnRule(words, lambda kind: isinstance(kind, types))


TEXT: Final = column("STRING", StringType)
MS: Final = column("an integer (ms)", IntegralType)
JSON: Final = column(
    "STRUCT, MAP, ARRAY, VARIANT, or STRING holding JSON", StringType, StructType, MapType, ArrayType, VariantType
)
JSON_OBJECT: Final = column("STRING holding a JSON object, STRUCT or MAP", StringType, StructType, MapType)


def column_indexes(
    schema: StructType, columns: Mapping[str, ColumnRule], advice: str = "", ignored: Collection[str] = ()
) -> dict[str, int]:
    """Returns the index of each known column; names are case-insensitive.

    advice: what to do with an unknown column. ignored: lower-case names of columns that are left out. Raises
    OptionError for an unknown column, one of another type, and a name that stands twice.
    """
    known = {name.lower(): name for name in columns}
    indexes: dict[str, int] = {}
    for index, field in enumerate(schema.fields):
        name = known.get(field.name.lower())
        if name is None:
            if field.name.lower() in ignored:
                continue
            raise OptionError(f"unknown column `{field.name}`{did_you_mean(field.name, columns)}{advice}")
        if name in indexes:
            raise OptionError(f"expected one column `{name}`, got two: drop or rename one")
        if not columns[name].accepts(field.dataType):
            kind = field.dataType.simpleString().upper()
            raise OptionError(f"expected column `{field.name}` to be {columns[name].words}, got: {kind}; cast it")
        indexes[name] = index
    return indexes


def check_json_types(schema: StructType, indexes: Iterable[int]) -> None:
    """Raises OptionError for a column whose type JSON can't hold."""
    for field in (schema.fields[index] for index in indexes):
        try:
            arrow = to_arrow_schema(StructType([field]))[0]
        except (TypeError, ValueError) as error:
            # For example array(), a non-nullable VOID that Arrow does not support.
            raise OptionError(f"expected columns of types that Arrow supports: {error}; cast VOID to a type") from None
        if not is_encodable(arrow):
            raise OptionError(
                f"expected column `{field.name}` to be of types that JSON can hold, got: "
                f"{field.dataType.simpleString().upper()}; cast intervals to a number or a string, and VOID to a type"
            )


def column_values(
    batch: pa.RecordBatch,
    index: int,
    name: str,
    numbers: Sequence[int | str],
    *,
    is_json: bool = False,
) -> list[Any]:
    """The values of a column: of one with JSON its texts, of TIMESTAMP the ms since 1970, of STRUCT without nulls.

    numbers: row numbers, for errors.
    """
    array, kind = batch.column(index), batch.column(index).type
    if is_json and is_text(kind):
        check_json(array, name, numbers)
    elif is_json:
        array = to_json(array, batch.schema.field(index), ignore_nulls=True)
    elif pa.types.is_timestamp(kind):
        array = ms_of(array)
    elif pa.types.is_struct(kind):
        return [value and {name: v for name, v in value.items() if v is not None} for value in array.to_pylist()]
    values: list[Any] = array.to_pylist()
    return values


@contextmanager
def errors_of_row(number: int | str) -> Iterator[None]:
    """Adds the number of a row to errors of its values."""
    try:
        yield
    except SparkBullError as error:
        raise restated(error, f"row {number}: {error}") from error


#: Name of the option and the column that name a queue.
QUEUE: Final = "queue"
#: Name of a queue, the values of its rows by column, and their numbers.
QueueRows: TypeAlias = tuple[str, dict[str, list[Any]], Sequence[int]]


def by_queue(rows: dict[str, list[Any]], queue: str | None, numbers: Sequence[int]) -> Iterator[QueueRows]:
    """Splits rows, given by column, by their column `queue`, if they have one.

    queue: the queue of rows without such a column; None: they have one. numbers: row numbers, for errors. Raises
    OptionError.
    """
    queues = rows.pop(QUEUE, None)
    if queues is None:
        assert queue is not None
        yield queue, rows, numbers
        return
    for name, number in zip(queues, numbers, strict=True):
        if not name:
            raise OptionError(f"row {number}: expected `queue` to name a queue, got {name!r}")
    yield from split(rows, queues, numbers)


def split(rows: Mapping[str, Sequence[Any]], names: Sequence[str], numbers: Sequence[int]) -> Iterator[QueueRows]:
    """Splits rows by names, one for each."""
    members: dict[str, list[int]] = defaultdict(list)
    for position, name in enumerate(names):
        members[name].append(position)
    for name, positions in members.items():
        some = {column: [values[i] for i in positions] for column, values in rows.items()}
        yield name, some, [numbers[i] for i in positions]
