"""Writes the generated tables of the documentation: options, commands, features of dialects and of PySpark.

They are from core/options/table.py, core/dialects/features.py, spark/platform/capabilities.py and ops/cli/commands.py.

python tools/reference_pages.py
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, get_args

from spark_bull.core.dialects.features import FEATURES, HOLDERS, FeatureColumn
from spark_bull.core.options.parse import shown_in
from spark_bull.core.options.table import (
    CLAIM,
    COLLECT,
    EVENTS,
    LIMITS,
    MANAGE,
    READ,
    SCHEDULE,
    SETTLE,
    TABLE,
    WORK,
    WRITE,
    Option,
)
from spark_bull.ops.cli.commands import all_commands
from spark_bull.spark.platform.capabilities import CAPABILITIES

PAGES: Final = Path(__file__).parent.parent / "docs"
VERBS: Final = frozenset({WRITE, READ, CLAIM, SETTLE, SCHEDULE, MANAGE, LIMITS, COLLECT, EVENTS})
_BLOCK: Final = re.compile(r"(<!-- (options: \w+|commands|features|pyspark) -->\n).*?(<!-- end -->)", re.DOTALL)


def shared() -> str:
    """Returns the table of the options that all verbs have."""
    return _options([option for option in TABLE if VERBS.issubset(option.scopes)])


def of(scope: str) -> str:
    """Returns the table of the other options of a verb."""
    options = [option for option in TABLE if scope in option.scopes and not VERBS.issubset(option.scopes)]
    return shown_in(scope, _options(options, scope))


def commands() -> str:
    """Returns the table of the commands of `spark-bull`."""
    rows = [f"| `{command.name}` | {command.help} | `spark-bull {command.example}` |" for command in all_commands()]
    return "\n".join(["| command | what it does | example |", "|---|---|---|", *rows])


def features() -> str:
    """Returns the table of the features of dialects."""
    columns = get_args(FeatureColumn)
    rows = [
        " | ".join(
            [
                feature.replace("-", " "),
                *("yes" if column in HOLDERS[row.where] else "–" for column in columns),
                row.lacking.format(dialect="the dialect") + (row.remedy and f"; {row.remedy}"),
            ]
        )
        for feature, row in FEATURES.items()
    ]
    head = " | ".join(["feature", *(f"`{column}`" for column in columns), "without it"])
    return "\n".join([f"| {line} |" for line in (head, "|".join(["---"] * 6).replace("|", " | "), *rows)])


def pyspark() -> str:
    """Returns the table of what only some versions of PySpark can do."""
    rows = [f"| {one.what} | {one.since} | {one.otherwise} |" for one in CAPABILITIES.values()]
    return "\n".join(["| what | since PySpark | with older ones |", "|---|---|---|", *rows])


TABLES: Final[Mapping[str, Callable[[], str]]] = {
    "commands": commands,
    "features": features,
    "pyspark": pyspark,
    "options: all": shared,
    **{f"options: {scope}": lambda scope=scope: of(scope) for scope in (*VERBS, WORK)},  # type: ignore[misc]
}


def with_tables(text: str) -> str:
    """Replaces the content of each marked block."""
    return _BLOCK.sub(lambda block: f"{block[1]}{TABLES[block[2]]()}\n{block[3]}", text)


def _options(options: list[Option], scope: str | None = None) -> str:
    lines = [f"| `{option.name}` | {option.default_text(scope)} | {option.doc} |" for option in options]
    return "\n".join(["| option | default | meaning |", "|---|---|---|", *lines])


if __name__ == "__main__":
    for page in sorted(PAGES.rglob("*.md")):
        page.write_text(with_tables(page.read_text("utf-8")), "utf-8")
