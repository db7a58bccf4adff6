"""Offsets of streams that come back from a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from spark_bull.core.errors import OptionError, SparkBullError

T = TypeVar("T")


def read_offset(offset: Mapping[str, Any], read: Callable[[Mapping[str, Any]], T]) -> T:
    """What `read` makes of an offset. Raises SparkBullError for one that it cannot read."""
    try:
        return read(offset)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise SparkBullError(
            f"expected an offset in the checkpoint that this kind of query has written, got: {str(offset)[:500]}; "
            "restore the checkpoint if it is damaged, and give a query with another `mode` or `view` one of its own"
        ) from error


def check_reader(given: str | None, stored: str) -> None:
    """Raises OptionError for a `readerId` that is not the one in the checkpoint."""
    if given not in (None, stored):
        raise OptionError(
            f"expected `readerId` to be {stored!r}, with which the checkpoint was written, or to be left out, got: "
            f"{given!r}; to read under another name, give another checkpoint"
        )
