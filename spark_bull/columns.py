"""Columns as the scripts take and give them: a list of values, or one value for all rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def listed(column: Any, count: int) -> list[Any]:
    """The values of all `count` rows."""
    return column if isinstance(column, list) else [column] * count


def converted(column: Any, convert: Callable[[Any], Any]) -> Any:
    """The column with each value converted; one value for all stays one."""
    return [convert(value) for value in column] if isinstance(column, list) else convert(column)
