"""`spark-bull notebooks` copies the notebooks of the package, and replaces no file."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_bull.cli import main
from tests.support.notebooks import NOTEBOOKS


def test_the_notebooks_are_copied_to_a_new_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "a" / "b"
    assert main(["notebooks", str(folder)]) == 0
    assert capsys.readouterr().out.splitlines() == [str(folder / path.name) for path in NOTEBOOKS]
    assert [(folder / path.name).read_bytes() for path in NOTEBOOKS] == [path.read_bytes() for path in NOTEBOOKS]


def test_a_notebook_that_exists_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / NOTEBOOKS[-1].name
    mine.write_text("mine")
    assert main(["notebooks", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"spark-bull notebooks: {mine} exists: give a folder without it\n"
    assert [path.name for path in tmp_path.iterdir()] == [mine.name]
    assert mine.read_text() == "mine"
