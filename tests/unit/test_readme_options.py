from collections import Counter

import pytest

from spark_bull.cli.commands import COMMANDS
from spark_bull.options import TABLE
from tools.reference_pages import PAGES, with_tables


@pytest.mark.parametrize("name", ["options.md", "command.md"])
def test_the_tables_of_the_reference_are_those_of_the_code(name: str) -> None:
    text = (PAGES / name).read_text("utf-8")
    assert with_tables(text) == text, "run: python tools/reference_pages.py"


def test_every_option_is_listed_and_those_of_all_verbs_once() -> None:
    text = (PAGES / "options.md").read_text("utf-8")
    listed = Counter(line.split("`")[1] for line in text.splitlines() if line.startswith("| `"))
    assert set(listed) == {option.name for option in TABLE}
    assert listed["url"] == listed["chunkSize"] == listed["queue"] == 1


def test_every_command_is_listed_once() -> None:
    text = (PAGES / "command.md").read_text("utf-8")
    assert all(text.count(f"| `{command.name}` |") == 1 for command in COMMANDS)
