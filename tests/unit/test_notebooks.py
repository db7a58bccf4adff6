"""The notebooks: stored outputs of one whole run, with charts, which tests/spark/test_notebooks.py repeats; copies."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from spark_bull.ops.cli import main
from tests.support.examples import NOTEBOOKS, PRINTED, missing_in_notebook

ROOT = Path(__file__).parents[2]
#: Of a chart, bytes.
MAX_BYTES = 60_000
#: Paths, addresses and errors of the machine on which they ran.
TRACES = re.compile(r"/(?:home|root|tmp|usr|var|work|Users)/|\d+\.\d+\.\d+\.\d+|redis://|Traceback|WARN|Exception")
Cell = dict[str, Any]


def code_cells(path: Path) -> list[Cell]:
    return [cell for cell in json.loads(path.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]


def charts(path: Path) -> list[bytes]:
    outputs = [output.get("data", {}) for cell in code_cells(path) for output in cell["outputs"]]
    return [b64decode(data["image/png"]) for data in outputs if "image/png" in data]


def test_every_notebook_has_the_expected_output_of_one_run() -> None:
    assert [path.stem for path in NOTEBOOKS] == sorted(PRINTED)
    for path in NOTEBOOKS:
        cells = code_cells(path)
        counts = [cell["execution_count"] for cell in cells]
        assert counts == list(range(1, len(cells) + 1)), f"{path.stem}: run `make notebooks`"
        assert not missing_in_notebook(path, cells)


def test_every_notebook_has_a_chart_and_all_are_small() -> None:
    assert [path.stem for path in NOTEBOOKS if not charts(path)] == []
    large = {path.stem: len(chart) for path in NOTEBOOKS for chart in charts(path) if len(chart) > MAX_BYTES}
    assert large == {}


def test_the_documentation_shows_the_books_of_the_stored_notebook() -> None:
    [notebook] = [path for path in NOTEBOOKS if path.stem == "05_lakehouse"]
    assert (ROOT / "docs" / "images" / "lakehouse.png").read_bytes() == charts(notebook)[-1]


def test_stored_outputs_have_no_errors_and_name_no_machine() -> None:
    outputs = [(path.stem, output) for path in NOTEBOOKS for cell in code_cells(path) for output in cell["outputs"]]
    assert [name for name, output in outputs if output["output_type"] == "error"] == []
    texts = [(name, output.get("text") or output["data"]["text/plain"]) for name, output in outputs]
    assert [(name, text) for name, lines in texts if TRACES.search(text := "".join(lines))] == []


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
