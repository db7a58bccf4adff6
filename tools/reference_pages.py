"""Writes the generated tables of the documentation: options, commands, features of dialects and of PySpark.

They are from core/options, core/dialects/features.py, spark/platform/capabilities.py and ops/cli.

python tools/reference_pages.py
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, get_args

from spark_bull.core.dialects.features import FEATURES, HOLDERS, FeatureColumn
from spark_bull.core.options.parse import shown_in
from spark_bull.core.options.parts import Option, Options, options_in
from spark_bull.core.options.table import SCOPES, LimitsOptions
from spark_bull.ops.cli.commands import GROUPS, all_commands
from spark_bull.ops.cli.status import MEANINGS
from spark_bull.spark.platform.capabilities import CAPABILITIES

PAGES: Final = Path(__file__).parent.parent / "docs"
_BLOCK: Final = re.compile(
    r"(<!-- (options: \w+|commands|statuses|features|pyspark) -->\n).*?(<!-- end -->)", re.DOTALL
)


def shared() -> str:
    """Returns the table of the options that all verbs have."""
    return _options(options_in(LimitsOptions).values())


def of(scope: type[Options]) -> str:
    """Returns the table of the other options of a verb."""
    common = {option.attribute for option in options_in(LimitsOptions).values()}
    return shown_in(scope, _options(option for option in options_in(scope).values() if option.attribute not in common))


def commands() -> str:
    """Returns a table of commands of `spark-bull` for each group."""
    by_name = all_commands()
    tables = []
    for group, names in GROUPS.items():
        rows = [f"| `{name}` | {by_name[name].help} | `spark-bull {by_name[name].example}` |" for name in names]
        tables.append("\n".join([f"## {group}\n", "| command | what it does | example |", "|---|---|---|", *rows]))
    return "\n" + "\n\n".join(tables) + "\n"


def statuses() -> str:
    """Returns the table of the exit statuses of `spark-bull`."""
    rows = [f"| {status} | {meaning} |" for status, meaning in MEANINGS.items()]
    return "\n".join(["| status | meaning |", "|---|---|", *rows])


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
    "statuses": statuses,
    "features": features,
    "pyspark": pyspark,
    "options: all": shared,
    **{f"options: {scope.__name__.removesuffix('Options').lower()}": partial(of, scope) for scope in SCOPES},
}


def with_tables(text: str) -> str:
    """Replaces the content of each marked block."""
    return _BLOCK.sub(lambda block: f"{block[1]}{TABLES[block[2]]()}\n{block[3]}", text)


def _options(options: Iterable[Option]) -> str:
    lines = [f"| `{option.name}` | {option.default_text} | {option.doc} |" for option in options]
    return "\n".join(["| option | default | meaning |", "|---|---|---|", *lines])


if __name__ == "__main__":
    for page in sorted(PAGES.rglob("*.md")):
        page.write_text(with_tables(page.read_text("utf-8")), "utf-8")
