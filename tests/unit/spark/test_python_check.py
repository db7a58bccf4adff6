"""If Spark starts another Python than the one that runs here, a warning names the packages that it lacks."""

from __future__ import annotations

import logging
import subprocess
import sys
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

from spark_bull.spark.platform import python_check
from spark_bull.spark.platform.python_check import check_python
from spark_bull.spark.platform.query_start import LATE, start_query
from tests.unit.spark.test_query_start import Query


@dataclass(frozen=True)
class Context:
    """The attributes of a SparkContext that `check_python` reads."""

    pythonExec: str
    master: str = "local[2]"


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """Clears the results that are cached per Python."""
    python_check._has_all.cache_clear()
    yield
    python_check._has_all.cache_clear()


@pytest.fixture(scope="module")
def empty_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A virtual environment of this Python without packages."""
    folder = tmp_path_factory.mktemp("empty")
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    return str(folder / "bin" / "python")


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def has_context(monkeypatch: pytest.MonkeyPatch, context: Context | None) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", context)


def test_a_python_without_packages_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, empty_python: str
) -> None:
    has_context(monkeypatch, Context(empty_python))
    assert [check_python(), check_python()] == [False, False]
    [warning] = warnings_of(caplog)
    assert f"Spark starts {empty_python} for its Python processes, which lacks msgpack, pandas, pyarrow" in warning
    assert f"PYSPARK_PYTHON={sys.executable}" in warning


def test_a_missing_python_is_reported(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    has_context(monkeypatch, Context("/nowhere/python3"))
    assert not check_python()
    [warning] = warnings_of(caplog)
    assert "Spark starts /nowhere/python3 for its Python processes, which does not exist" in warning


def test_another_python_with_all_packages_causes_no_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, foreign_python: Path
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    has_context(monkeypatch, Context(str(foreign_python)))
    assert check_python()
    assert warnings_of(caplog) == []


def test_the_running_python_is_not_started_for_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a process was started"))
    has_context(monkeypatch, Context(sys.executable))
    assert check_python()


@pytest.mark.parametrize(
    "context", [None, Context("/nowhere/python3", "spark://host:7077")], ids=["connect", "cluster"]
)
def test_a_python_on_other_machines_is_not_checked(monkeypatch: pytest.MonkeyPatch, context: Context | None) -> None:
    has_context(monkeypatch, context)
    assert check_python()


def test_a_query_is_not_restarted_when_its_python_lacks_packages(
    monkeypatch: pytest.MonkeyPatch, empty_python: str
) -> None:
    has_context(monkeypatch, Context(empty_python))
    started: list[Any] = []

    def start() -> Any:
        started.append(Query(LATE))
        return started[-1]

    assert start_query(start) is started[0]
    assert len(started) == 1
