"""Rows as a table for people, or as JSON for programs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

Row = Mapping[str, Any]

#: Columns that hold ms since 1970.
_TIMES: Final = frozenset({"timestamp", "processed_on", "finished_on", "started_on", "run_at"})
_NARROWEST: Final = 12


def as_json(found: Any) -> str:
    """One JSON document."""
    return json.dumps(found, ensure_ascii=False, indent=2)


def as_table(rows: Sequence[Row], width: int | None = None) -> str:
    """Columns side by side, numbers to the right, the widest texts cut to fit the terminal."""
    if not rows:
        return "nothing"
    names = [name for name in rows[0] if any(row[name] not in (None, "", ()) for row in rows)] or list(rows[0])
    cells = [[_shown(name, row[name]) for name in names] for row in rows]
    widths = _fitted([[name, *column] for name, column in zip(names, zip(*cells, strict=True), strict=True)], width)
    right = [all(isinstance(row[name], int) and name not in _TIMES for row in rows) for name in names]
    lines = [_line(names, widths, right), _line(["-" * width for width in widths], widths, right)]
    lines += [_line(row, widths, right) for row in cells]
    return "\n".join(lines)


def as_list(row: Row) -> str:
    """One thing, a property in a line, uncut."""
    names = [name for name in row if row[name] not in (None, "", ())]
    longest = max(map(len, names), default=0)
    return "\n".join(f"{name:{longest}}  {_shown(name, row[name], whole=True)}" for name in names)


def _shown(name: str, value: Any, *, whole: bool = False) -> str:
    if value is None:
        return ""
    if name in _TIMES:
        return datetime.fromtimestamp(value / 1000).astimezone().isoformat(sep=" ", timespec="seconds")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, tuple):
        return ("\n" if whole else " | ").join(str(item) for item in value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if whole else " ".join(text.split())


def _fitted(columns: list[list[str]], width: int | None) -> list[int]:
    """Widths that fit; whatever is too much is taken from the widest column, again and again."""
    room = (width or shutil.get_terminal_size((120, 24)).columns) - 2 * (len(columns) - 1)
    widths = [max(map(len, column)) for column in columns]
    while sum(widths) > room and max(widths) > _NARROWEST:
        widths[widths.index(max(widths))] -= 1
    return widths


def _line(cells: Sequence[str], widths: list[int], right: list[bool]) -> str:
    cut = [cell if len(cell) <= width else cell[: width - 1] + "…" for cell, width in zip(cells, widths, strict=True)]
    sides = zip(cut, widths, right, strict=True)
    return "  ".join(cell.rjust(width) if to_right else cell.ljust(width) for cell, width, to_right in sides).rstrip()
