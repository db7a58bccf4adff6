"""Every notebook runs alone, where `spark-bull notebooks` has copied it, and prints the expected output."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_bull.ops.cli import main
from tests.support.examples import NOTEBOOKS, missing_in_notebook
from tests.support.fork_server import VARIABLE
from tests.support.wait import PATIENCE_S

if TYPE_CHECKING:
    # Their import takes seconds of CPU in each process of the tests, so the tests that need them import them.
    from jupyter_client.manager import KernelManager
    from nbformat import NotebookNode

pytestmark = pytest.mark.rest


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the notebooks, outside the checkout."""
    folder = tmp_path_factory.mktemp("notebooks")
    assert main(["notebooks", str(folder)]) == 0
    return folder


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


def run(notebook: NotebookNode, kernel: KernelManager) -> None:
    from nbclient import NotebookClient

    client = NotebookClient(notebook, km=kernel, timeout=int(PATIENCE_S))
    try:
        client.execute()
    finally:
        # A client that has not started its kernel leaves its sockets open.
        client.kc.stop_channels()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.interop
def test_every_cell_runs_and_prints_the_expected_output(kernel: KernelManager, copied: Path, path: Path) -> None:
    import nbformat

    notebook = nbformat.read(copied / path.name, as_version=4)
    # Outside the checkout, it would install BullMQ.
    folder = path.parent if path.stem == "03_talking_to_node" else copied
    notebook.cells.insert(0, nbformat.v4.new_code_cell(f"%reset -f\n%cd -q {folder}"))
    run(notebook, kernel)
    first, *cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count - first.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not missing_in_notebook(path, cells)


PROGRESS = """
import time
from itertools import count
from spark_bull.run.progress_line import ProgressLine

numbers = count()
line = ProgressLine(lambda: f"step {next(numbers)}", 0.001)
line.start()
while next(numbers) < 10:
    time.sleep(0.001)
line.stop(lambda: "done")
"""


def test_a_progress_is_one_output_of_its_cell(kernel: KernelManager) -> None:
    import nbformat

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(PROGRESS)])
    run(notebook, kernel)
    [output] = notebook.cells[0].outputs
    assert (output.output_type, dict(output.data)) == ("display_data", {"text/plain": "done"})
