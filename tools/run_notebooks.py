"""Runs notebooks, and stores their outputs in them: tools/run_notebooks.py [notebook ...]; default: all."""

from __future__ import annotations

import sys
from base64 import b64decode
from pathlib import Path
from typing import Final

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

ROOT: Final = Path(__file__).parents[1]
NOTEBOOKS: Final = ROOT / "notebooks"
#: The file of the last chart of a notebook, which the documentation shows.
PICTURES: Final = {"05_lakehouse": ROOT / "docs" / "images" / "lakehouse.png"}
#: Time limit of a cell, s.
CELL_S: Final = 600


def run(path: Path) -> None:
    """Runs a notebook in its folder. Raises CellExecutionError, and then leaves the file as it was."""
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=CELL_S, record_timing=False, resources=resources).execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            # Standard error has warnings of Spark, with paths and addresses of this machine.
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
    # The kernel adds the version of Python.
    notebook.metadata.language_info = {"name": "python"}
    path.write_text(nbformat.writes(notebook, version=4) + "\n", encoding="utf-8")
    if path.stem in PICTURES:
        PICTURES[path.stem].write_bytes(charts(notebook)[-1])


def charts(notebook: NotebookNode) -> list[bytes]:
    """The charts of a notebook, as PNG."""
    outputs = [output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", [])]
    return [b64decode(data["image/png"]) for data in outputs if "image/png" in data]


def main() -> None:
    for path in [Path(name) for name in sys.argv[1:]] or sorted(NOTEBOOKS.glob("*.ipynb")):
        run(path.resolve())
        print(f"{path}: {path.stat().st_size:,} bytes", flush=True)


if __name__ == "__main__":
    main()
