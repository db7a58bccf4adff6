"""The generated tables of the documentation: options, commands, features and PySpark."""

from collections import Counter

import pytest

from spark_bull.cli.commands import all_commands
from spark_bull.options.parse import spelled
from spark_bull.options.table import CLAIM, COLLECT, EVENTS, READ, SCHEDULE, SETTLE, TABLE, WORK, WRITE
from tools.reference_pages import PAGES, VERBS, of, shared, with_tables


@pytest.mark.parametrize(
    "name", ["reference/options.md", "reference/command.md", "concepts/dialects.md", "reference/pyspark.md"]
)
def test_the_generated_tables_are_up_to_date(name: str) -> None:
    text = (PAGES / name).read_text("utf-8")
    assert with_tables(text) == text, "run: python tools/reference_pages.py"


def test_every_option_is_listed_and_those_of_all_verbs_once() -> None:
    text = (PAGES / "reference" / "options.md").read_text("utf-8")
    listed = Counter(line.split("`")[1] for line in text.splitlines() if line.startswith("| `"))
    assert {spelled(name, WORK) for name in listed} == {spelled(option.name, WORK) for option in TABLE}
    assert listed["url"] == listed["chunkSize"] == listed["queue"] == 1


@pytest.mark.parametrize("scope", [WRITE, READ, CLAIM, SETTLE, SCHEDULE, COLLECT, EVENTS, WORK])
def test_a_table_lists_the_options_of_its_scope_that_are_not_common(scope: str) -> None:
    head, rule, *rows = of(scope).splitlines()
    assert (head, rule) == ("| option | default | meaning |", "|---|---|---|")
    listed = [row.split("`")[1] for row in rows]
    names = [option.name for option in TABLE if scope in option.scopes and not VERBS.issubset(option.scopes)]
    assert listed == [spelled(name, scope) for name in names]
    # A bar in a cell would break the row.
    assert all(row.count("|") == 4 for row in rows)


def test_defaults_are_shown_as_users_write_them() -> None:
    lines = [*shared().splitlines()[2:], *of(WRITE).splitlines()[2:], *of(COLLECT).splitlines()[2:]]
    rows = {row.split("`")[1]: row.split(" | ")[1] for row in lines}
    assert rows["chunkSize"] == "500; when jobs are added or changed: 250"
    assert rows["confirmObliterate"] == "`false`"
    assert rows["ignoreNullFields"] == "`true`"
    assert rows["db"] == "`0`"
    assert rows["txnAppId"] == ""
    assert rows["states"] == "`completed,failed`"


def test_every_command_is_listed_once() -> None:
    text = (PAGES / "reference" / "command.md").read_text("utf-8")
    assert all(text.count(f"| `{command.name}` |") == 1 for command in all_commands())
