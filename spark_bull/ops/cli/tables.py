"""Formats the output of a command as a table or list, rendered by rich, or as JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from spark_bull.core.clock import duration, relative, utc

Row = Mapping[str, Any]

#: Columns with ms since 1970. In tables, those in the future also have a relative time.
_TIMES: Final = frozenset(
    {"timestamp", "processed_on", "finished_on", "started_on", "run_at", "next", "start_date", "end_date"}
)
_FUTURE: Final = frozenset({"run_at", "next"})
#: Columns with durations, and their unit in ms.
_DURATIONS: Final = {"delay": 1, "duration_ms": 1, "every": 1, "offset": 1, "age": 1_000, "idle": 1_000}
#: Columns in which 0 counts as empty.
_ZERO_IS_EMPTY: Final = frozenset(
    {"attempts_made", "deduplicated", "delay", "priority", "returned_counter", "skipped", "stalled_counter"}
)
#: Width of tables that are not printed to a terminal: nothing is truncated.
_UNLIMITED: Final = 1 << 40
#: Control characters, such as \x1b, and their escaped form.
_CONTROLS: Final = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


def as_json(output: Any) -> str:
    """Formats output as one JSON document."""
    return json.dumps(output, ensure_ascii=False, indent=2)


def as_text(output: Any) -> str:
    """Formats rows as a table and the properties of one object as a list; strings are returned unchanged."""
    if isinstance(output, str):
        return output
    if isinstance(output, Mapping):
        return as_list(output)
    if output and isinstance(output[0], str):
        return "\n".join(printable(line) for line in output)
    return as_table(output)


def as_table(rows: Sequence[Row]) -> str:
    """Formats rows as a table, without empty columns; numbers are right-aligned. Without rows it is empty.

    On a terminal the widest texts are truncated to fit its width.
    """
    if not rows:
        return ""
    # JSON, lists and texts need none of it.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    now_ms = int(time.time() * 1000)
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold")
    names = [name for name in rows[0] if not all(_is_empty(name, row[name]) for row in rows)] or list(rows[0])
    for name in names:
        values = [row[name] for row in rows if row[name] is not None]
        is_number = all(isinstance(value, int) for value in values)
        table.add_column(name, justify="right" if is_number and name not in _TIMES else "left", no_wrap=is_number)
    for row in rows:
        cells = (_in_cell(name, row[name], now_ms) for name in names)
        table.add_row(*(Text(cell, no_wrap=True, overflow="ellipsis") for cell in cells))
    console = Console(width=None if sys.stdout.isatty() else _UNLIMITED)
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def as_list(row: Row) -> str:
    """Formats the properties of one object, one per line, without truncation."""
    now_ms = int(time.time() * 1000)
    names = [name for name in row if not _is_empty(name, row[name])]
    longest = max(map(len, names), default=0)
    return "\n".join(f"{name:{longest}}  {_in_list(name, row[name], now_ms)}" for name in names)


def _is_empty(name: str, value: Any) -> bool:
    return value is None or (not value and (name in _ZERO_IS_EMPTY or isinstance(value, (str, tuple, list, dict))))


def _in_cell(name: str, value: Any, now_ms: int) -> str:
    if name in _TIMES and value is not None:
        return f"{utc(value)} ({relative(value, now_ms)})" if name in _FUTURE else utc(value)
    return " ".join((" | " if isinstance(value, tuple) else "").join(_texts(name, value)).split())


def _in_list(name: str, value: Any, now_ms: int) -> str:
    if name in _TIMES:
        return f"{utc(value)} ({relative(value, now_ms)})"
    return "\n".join(_texts(name, value))


def _texts(name: str, value: Any) -> list[str]:
    """Formats a value that is not a time; a tuple has several texts."""
    if value is None:
        return []
    if isinstance(value, tuple):
        return [printable(str(item)) for item in value]
    if isinstance(value, bool):
        return ["yes" if value else "no"]
    if isinstance(value, int):
        return [duration(value * _DURATIONS[name]) if name in _DURATIONS else f"{value:,}"]
    return [printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))]


def printable(text: str) -> str:
    """Escapes control characters, which could change the terminal."""
    return text.translate(_CONTROLS)


def one_line(text: str) -> str:
    """The same, with ends of lines, too, which could feign other lines."""
    return printable(text).replace("\n", "\\n")
