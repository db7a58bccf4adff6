"""Checks the columns of a DataFrame against a table of known ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType, VariantType

from spark_bull.errors import OptionError, did_you_mean
from spark_bull.spark.json.json_text import is_encodable


class Column(NamedTuple):
    """The types that a column may have, and their names in SQL."""

    types: tuple[type[DataType], ...]
    words: str


TEXT: Final = Column((StringType,), "STRING")
JSON: Final = Column(
    (StringType, StructType, MapType, ArrayType, VariantType), "STRUCT, MAP, ARRAY, VARIANT, or STRING holding JSON"
)


def column_indexes(
    schema: StructType, columns: Mapping[str, Column], advice: str, ignored: Collection[str] = ()
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
            near = did_you_mean(field.name, columns)
            raise OptionError(f"unknown column `{field.name}`{near} {advice}")
        if name in indexes:
            raise OptionError(f"expected one column `{name}`, got two: drop or rename one")
        if not isinstance(field.dataType, columns[name].types):
            kind = field.dataType.simpleString().upper()
            raise OptionError(f"expected column `{field.name}` to be {columns[name].words}, got: {kind}; cast it")
        indexes[name] = index
    return indexes


def check_json_columns(schema: StructType, indexes: Mapping[str, int], names: Collection[str]) -> None:
    """Raises OptionError for a column whose type JSON can't hold."""
    for name in names:
        if name in indexes:
            field = schema.fields[indexes[name]]
            if not is_encodable(to_arrow_schema(StructType([field]), timezone="UTC")[0]):
                kind = field.dataType.simpleString().upper()
                raise OptionError(f"expected column `{field.name}` to be of types that JSON can hold, got: {kind}")
