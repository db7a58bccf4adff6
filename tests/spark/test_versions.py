"""All verbs work with the oldest PySpark; `make matrix` runs more versions, other tests this one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import need
from tests.support.fork_server import VARIABLE, fork_server
from tools.matrix import STEPS, NotRun, oldest, run_program


def oldest_python() -> Path:
    """The interpreter of the environment that `make oldest` has made."""
    try:
        environment = oldest()
    except NotRun as why:
        pytest.skip(str(why))
    need(environment.is_made(), f"no {environment.folder.name}: run `make oldest`")
    return environment.interpreter


def this_python() -> Path:
    return Path(sys.executable)


@pytest.mark.rest
@pytest.mark.slow
@pytest.mark.parametrize("python", [oldest_python, pytest.param(this_python, marks=pytest.mark.soak)])
def test_all_verbs_work(python: Callable[[], Path], tmp_path: Path) -> None:
    """The processes that Spark starts are forks of one with this Python and this PySpark."""
    interpreter = python()
    with fork_server(tmp_path, interpreter) as forks:
        forking = {"SPARK_BULL_TEST_PYTHON": str(interpreter), VARIABLE: str(forks)}
        steps, output = run_program(interpreter, {"PYSPARK_PYTHON": os.environ["PYSPARK_PYTHON"], **forking})
    assert steps == set(STEPS), output
