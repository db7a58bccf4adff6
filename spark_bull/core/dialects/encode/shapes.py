"""Shapes of rows: rows of one shape differ only in ids and times, which are stored beside the options of a job.

They share one options text, so that it is enough to encode one of them. Whatever is unusual about a batch, above all a
wrong value, has no shapes: then rows are encoded one by one, which finds the errors.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

from spark_bull.core.clock import LAST_ETA_MS, epoch_ms
from spark_bull.core.dialects.deduplication import DEDUPLICATION

#: Properties of which each row has its own value, and the types of their values.
OWN: Final[Mapping[str, frozenset[type]]] = {
    "jobId": frozenset({str, int}),
    "delay": frozenset({int}),
    "runAt": frozenset({int}),
    "timestamp": frozenset({int}),
    DEDUPLICATION: frozenset({str}),
}
#: Properties of options that rows of a shape have in common, and the types of their values.
_SHARED: Final = frozenset({"priority", "attempts", "backoff", "lifo", "removeOnComplete", "removeOnFail", "lockMs"})
_SCALARS: Final = frozenset({bool, int, float, str, Decimal})


class Shapes(NamedTuple):
    """first: the position of the first row of each shape. of_row: the shape of each row; None if all have one."""

    first: list[int]
    of_row: list[int] | None


def shapes_of(columns: Mapping[str, Sequence[Any]], delay: int) -> Shapes | None:
    """The shapes of rows that have these properties; None if they have to be encoded one by one.

    columns: lists of equal length, not empty; None means not given. delay: that of rows without one, ms.
    """
    parts: list[Sequence[Hashable]] = []
    for name, column in columns.items():
        types = set(map(type, column)) - {type(None)}
        if name in OWN:
            if not types <= OWN[name] or "" in column:
                return None
            if None in column:
                parts.append([value is not None for value in column])
        elif name not in _SHARED or len(types) > 1 or not types <= _SCALARS:
            return None
        elif any(value != column[0] for value in column):
            parts.append(column)
    if not _are_in_range(columns, delay):
        return None
    if not parts:
        return Shapes([0], None)
    return _numbered(list(zip(*parts, strict=True)))


def _are_in_range(columns: Mapping[str, Sequence[Any]], delay: int) -> bool:
    """Whether all times are certainly valid."""
    delays, run_ats, timestamps = (
        [value for value in columns.get(name, ()) if value is not None] for name in ("delay", "runAt", "timestamp")
    )
    latest = max([epoch_ms(), *timestamps]) + max([delay, *delays])
    return min(delays, default=0) >= 0 and max([latest, *run_ats]) <= LAST_ETA_MS


def _numbered(keys: list[tuple[Hashable, ...]]) -> Shapes:
    numbers: dict[tuple[Hashable, ...], int] = {}
    of_row = [numbers.setdefault(key, len(numbers)) for key in keys]
    first: list[int] = []
    for position, number in enumerate(of_row):
        if number == len(first):
            first.append(position)
            if len(first) == len(numbers):
                break
    return Shapes(first, of_row)
