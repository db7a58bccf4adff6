"""Every notebook runs alone and prints the expected output; no output is committed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import need
from tests.support.fork_server import VARIABLE
from tests.support.peers import NODE_DIRECTORY
from tests.support.wait import PATIENCE_S

if TYPE_CHECKING:
    # Their import takes seconds of CPU in each process of the tests, so the tests that need them import them.
    from jupyter_client.manager import KernelManager
    from nbformat import NotebookNode

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
#: The texts that each notebook prints, in this order and without spaces.
PRINTED = {
    "01_dispatch_and_read": (
        "|mail|wait|900|",
        "|mail|delayed|100|",
        '|1|delayed|welcome|{"id":0,"name":"customer-0"}|',
        '|2|wait|welcome|{"id":1,"name":"customer-1"}|NULL|',
        "|100|20",
        "|finished|1000|1000|NULL|NULL|",
        "|finished|10|10|nightly|1|",
        "1011{'wait':909,'active':0,'delayed':101,'prioritized':1",
    ),
    "02_workers_with_udfs": (
        "{'completed':1000}",
        "10.5",
        "2['priced7']",
        "{'completed':3,'failed':1}",
        "(-1,",
        "noroot",
        "{'completed':2,'failed':1}",
        '|1|completed|{"converted":0}|NULL|',
        '|2|completed|{"converted":11}|NULL|',
        "|3|failed|NULL|unknowncurrency|",
        "promoted=1",
    ),
    "03_talking_to_node": ("Nodeisthere", "|completed|196|2611700|", "Idonotlike50"),
    "04_dead_letter_queue": (
        "100completed,200failed",
        "|noaddress|100|",
        "|nosuchhost:exmaple.org|100|",
        "|finished|100|100|0|0|0|",
        "|finished|100|100|0|0|0|",
        "{'completed':200}",
        "100waitforanaddress",
    ),
    "05_lakehouse": (
        "2processesofworkerswerekilled,6queries",
        "rowsin900",
        "jobsadded900",
        "outcomes900",
        "rowsinthetable900",
        "differentrows900",
    ),
}

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def test_every_notebook_has_an_expected_output() -> None:
    assert [path.stem for path in NOTEBOOKS] == sorted(PRINTED)


@each_notebook
def test_a_notebook_is_committed_without_output(path: Path) -> None:
    notebook = json.loads(path.read_text())
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook["cells"])


@pytest.fixture(scope="module")
def kernel(python_forks: Path) -> Iterator[KernelManager]:
    """One kernel for all notebooks, and so one JVM, with a new Spark session for each of them."""
    from jupyter_client.manager import start_new_kernel

    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(VARIABLE, str(python_forks))
        manager, client = start_new_kernel()
    client.stop_channels()
    yield manager
    manager.shutdown_kernel()


@each_notebook
def test_every_cell_runs_and_prints_the_expected_output(kernel: KernelManager, path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    need((NODE_DIRECTORY / "node_modules").is_dir(), "needs the Node packages: run `npm ci` in tests/node")
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(f"%reset -f\n%cd -q {path.parent}"))
    NotebookClient(notebook, km=kernel, timeout=int(PATIENCE_S)).execute()
    first, *cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count - first.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    printed = "".join(printed_by(cell) for cell in cells)
    place = 0
    for text in PRINTED[path.stem]:
        assert text in printed[place:], f"{text} is not in:\n{printed[place:]}"
        place = printed.index(text, place)


PROGRESS = """
import time
from spark_bull.progress_line import ProgressLine

numbers = iter(range(100))
line = ProgressLine(lambda: f"step {next(numbers)}", 0.001)
line.start()
while next(numbers) < 10:
    time.sleep(0.001)
line.stop(lambda: "done")
"""


def test_a_progress_is_one_output_of_its_cell(kernel: KernelManager) -> None:
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(PROGRESS)])
    NotebookClient(notebook, km=kernel, timeout=int(PATIENCE_S)).execute()
    [output] = notebook.cells[0].outputs
    assert (output.output_type, dict(output.data)) == ("display_data", {"text/plain": "done"})


def printed_by(cell: NotebookNode) -> str:
    """The output of a cell without spaces."""
    outputs = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.outputs]
    return "".join(outputs).replace(" ", "")
