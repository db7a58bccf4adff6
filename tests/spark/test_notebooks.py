"""Every notebook runs from top to bottom, and is committed without what it printed."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support.wait import PATIENCE_S

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))

#: What each of them shows, if all has gone well.
SHOWN = {
    "01_dispatch_and_read": ["|delayed|", "'wait'"],
    "02_workers_with_udfs": ["'completed': 1000", "promoted="],
    "03_talking_to_node": ["|completed|"],
}

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) >= 2


@each_notebook
def test_it_is_committed_without_output(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells)


@each_notebook
def test_it_runs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=int(PATIENCE_S), resources={"metadata": {"path": str(path.parent)}}).execute()
    printed = "".join(str(output.get("text", "")) for cell in notebook.cells for output in cell.get("outputs", []))
    assert not [said for said in SHOWN[path.stem] if said not in printed]
