"""Writes the generated tables of docs/reference: options, from the table in spark_bull/options/table.py, and commands.

python tools/reference_pages.py
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from spark_bull.cli.commands import all_commands
from spark_bull.options.table import CLAIM, COLLECT, EVENTS, MANAGE, READ, SCHEDULE, SETTLE, TABLE, WORK, WRITE, Option

PAGES: Final = Path(__file__).parent.parent / "docs" / "reference"
VERBS: Final = frozenset({WRITE, READ, CLAIM, SETTLE, SCHEDULE, MANAGE, COLLECT, EVENTS})
_BLOCK: Final = re.compile(r"(<!-- (options: \w+|commands) -->\n).*?(<!-- end -->)", re.DOTALL)


def shared() -> str:
    """Returns the table of the options that all verbs have."""
    return _options([(option, _default(option)) for option in TABLE if VERBS.issubset(option.scopes)])


def of(scope: str) -> str:
    """Returns the table of the other options of a verb."""
    options = [option for option in TABLE if scope in option.scopes and not VERBS.issubset(option.scopes)]
    return _options([(option, _default(option, scope)) for option in options])


def commands() -> str:
    """Returns the table of the commands of `spark-bull`."""
    rows = [f"| `{command.name}` | {command.help} | `spark-bull {command.example}` |" for command in all_commands()]
    return "\n".join(["| command | what it does | example |", "|---|---|---|", *rows])


TABLES: Final[Mapping[str, Callable[[], str]]] = {
    "commands": commands,
    "options: all": shared,
    **{f"options: {scope}": lambda scope=scope: of(scope) for scope in (*VERBS, WORK)},  # type: ignore[misc]
}


def with_tables(text: str) -> str:
    """Replaces the content of each marked block."""
    return _BLOCK.sub(lambda block: f"{block[1]}{TABLES[block[2]]()}\n{block[3]}", text)


def _options(rows: list[tuple[Option, str]]) -> str:
    lines = [f"| `{option.name}` | {default} | {option.doc} |" for option, default in rows]
    return "\n".join(["| option | default | meaning |", "|---|---|---|", *lines])


def _default(option: Option, scope: str | None = None) -> str:
    """Formats a default as Markdown; that of a scope takes precedence over `shown`."""
    if scope is not None and scope in option.scope_defaults:
        return _text(option.scope_defaults[scope])
    return option.shown or _text(option.default)


def _text(default: Any) -> str:
    if default is None:
        return ""
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{','.join(default)}`" if isinstance(default, tuple) else f"`{default}`"


if __name__ == "__main__":
    for page in sorted(PAGES.glob("*.md")):
        page.write_text(with_tables(page.read_text("utf-8")), "utf-8")
