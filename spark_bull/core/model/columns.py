"""Columns of values, as scripts exchange them: a list, or a single value that all rows have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def listed(column: Any, count: int) -> list[Any]:
    """The column as a list of `count` values."""
    return column if isinstance(column, list) else [column] * count


def converted(column: Any, convert: Callable[[Any], Any]) -> Any:
    """The column with `convert` applied; a single value stays a single value."""
    return [convert(value) for value in column] if isinstance(column, list) else convert(column)
