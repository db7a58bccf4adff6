"""Spark starts the Python of the program, or the one that is named, which must have the required packages."""

from __future__ import annotations

import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

from spark_bull.errors import SparkBullError
from spark_bull.spark.platform.python_check import VARIABLE, ensure_python
from spark_bull.spark.platform.query_start import LATE, start_query
from tests.unit.spark.platform.test_query_start import Query


@dataclass
class Context:
    """The attributes of a SparkContext that `ensure_python` uses."""

    pythonExec: str
    master: str = "local[2]"


@pytest.fixture(scope="module")
def empty_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A virtual environment of this Python without packages."""
    folder = tmp_path_factory.mktemp("empty")
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    return str(folder / "bin" / "python")


def names(monkeypatch: pytest.MonkeyPatch, python: str, master: str = "local[2]") -> None:
    """The user has named this Python, and a session runs."""
    monkeypatch.setenv(VARIABLE, python)
    monkeypatch.setattr(SparkContext, "_active_spark_context", Context(python, master))


def test_without_a_named_python_spark_starts_that_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE)
    # An activated environment has the program's Python there.
    monkeypatch.setenv("PATH", "")
    context = Context("python3")
    monkeypatch.setattr(SparkContext, "_active_spark_context", context)
    ensure_python()
    assert context.pythonExec == sys.executable


def test_on_a_cluster_its_python_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE)
    context = Context("python3", "spark://host:7077")
    monkeypatch.setattr(SparkContext, "_active_spark_context", context)
    ensure_python()
    assert context.pythonExec == "python3"


def test_a_named_python_without_packages_is_refused(monkeypatch: pytest.MonkeyPatch, empty_python: str) -> None:
    names(monkeypatch, empty_python)
    with pytest.raises(SparkBullError, match=f"{empty_python} lacks msgpack, pandas, pyarrow") as raised:
        ensure_python()
    assert f"set it to {sys.executable}" in str(raised.value)


def test_a_missing_python_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    names(monkeypatch, "/nowhere/python3")
    with pytest.raises(SparkBullError, match="but /nowhere/python3 does not exist"):
        ensure_python()


def test_another_python_with_all_packages_is_accepted(monkeypatch: pytest.MonkeyPatch, foreign_python: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[4]))
    names(monkeypatch, str(foreign_python))
    ensure_python()


def test_the_running_python_is_not_started_for_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a process was started"))
    names(monkeypatch, sys.executable)
    ensure_python()


def test_a_python_on_other_machines_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    names(monkeypatch, "/nowhere/python3", "spark://host:7077")
    ensure_python()
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    ensure_python()


def test_a_query_is_not_restarted_when_its_python_lacks_packages(
    monkeypatch: pytest.MonkeyPatch, empty_python: str
) -> None:
    names(monkeypatch, empty_python)
    started: list[Any] = []

    def start() -> Any:
        started.append(Query(LATE))
        return started[-1]

    with pytest.raises(SparkBullError, match="lacks msgpack"):
        start_query(start)
    assert len(started) == 1
