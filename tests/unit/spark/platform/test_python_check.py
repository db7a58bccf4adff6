"""The versions of PySpark, the Python that Spark starts, and what tasks do with its process."""

from __future__ import annotations

import gc
import subprocess
import sys
import traceback
import venv
import weakref
from collections.abc import Callable
from configparser import ConfigParser
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyspark
import pytest
from pyspark import SparkContext

from spark_bull.core.errors import SparkBullError
from spark_bull.core.options.parse import parse_options
from spark_bull.core.options.table import SettleOptions
from spark_bull.core.queue.handle.walk import Slice
from spark_bull.spark.collect.stream import ResultRange, ResultReader
from spark_bull.spark.dispatch.task import WritePlan, write_task
from spark_bull.spark.inspect.source import BatchReader, OpenSlice
from spark_bull.spark.platform import datasource
from spark_bull.spark.platform.capabilities import CAPABILITIES
from spark_bull.spark.platform.requirements import (
    LATE,
    MIN_PYSPARK,
    VARIABLE,
    _check,
    check_pyspark,
    ensure_python,
    start_query,
)
from spark_bull.spark.work.claim_stream import ClaimRange, ClaimReader
from spark_bull.spark.work.settle.plan import SettlePlan
from spark_bull.spark.work.settle.task import settle_task
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


@pytest.mark.parametrize(("master", "started"), [("local[2]", sys.executable), ("spark://host:7077", "python3")])
def test_without_a_named_python_spark_starts_that_of_the_program_except_on_a_cluster(
    monkeypatch: pytest.MonkeyPatch, master: str, started: str
) -> None:
    monkeypatch.delenv(VARIABLE)
    # An activated environment has the program's Python there.
    monkeypatch.setenv("PATH", "")
    context = Context("python3", master)
    monkeypatch.setattr(SparkContext, "_active_spark_context", context)
    ensure_python()
    assert context.pythonExec == started


def test_a_named_python_that_is_missing_or_lacks_packages_is_refused(
    monkeypatch: pytest.MonkeyPatch, empty_python: str
) -> None:
    names(monkeypatch, empty_python)
    with pytest.raises(SparkBullError) as raised:
        ensure_python()
    assert traceback.format_exception(raised.value)[-1] == (
        "spark_bull.core.errors.SparkBullError: expected PYSPARK_PYTHON to name a Python with the packages of "
        f"spark_bull, but {empty_python} lacks msgpack, pandas, pyarrow, redis: set it to {sys.executable} before the "
        "session is created, or leave it out\n"
    )
    names(monkeypatch, "/nowhere/python3")
    with pytest.raises(SparkBullError, match="but /nowhere/python3 does not exist"):
        ensure_python()


def test_another_python_with_all_packages_is_accepted(monkeypatch: pytest.MonkeyPatch, foreign_python: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[4]))
    names(monkeypatch, str(foreign_python))
    ensure_python()


def test_neither_the_running_python_nor_one_on_other_machines_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a process was started"))
    names(monkeypatch, sys.executable)
    ensure_python()
    names(monkeypatch, "/nowhere/python3", "spark://host:7077")
    ensure_python()
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    ensure_python()


@pytest.mark.parametrize("is_running", [True, False])
def test_a_query_is_not_restarted_when_its_python_cannot_import_a_package(
    monkeypatch: pytest.MonkeyPatch, foreign_python: Path, tmp_path: Path, is_running: bool
) -> None:
    (tmp_path / "pyarrow").mkdir()
    (tmp_path / "pyarrow" / "__init__.py").write_text('raise ImportError("libarrow.so: not found\\nas a file")')
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).parents[4]}")
    _check.cache_clear()
    names(monkeypatch, sys.executable if is_running else str(foreign_python), "local[2]")
    with pytest.raises(SparkBullError, match=r"lacks pyarrow \(ImportError: libarrow.so: not found\): ") as raised:
        start_query(lambda: cast(Any, Query(LATE)))
    assert ("install them again" if is_running else f"set it to {sys.executable}") in str(raised.value)


class Frozen(Exception):
    """Ends a task at the point at which it excludes objects."""


@pytest.mark.parametrize(
    "task",
    [
        lambda: next(BatchReader.__new__(BatchReader).read(OpenSlice(Slice()))),
        lambda: next(ResultReader.__new__(ResultReader).read(ResultRange("q", "reader", 0, 1))),
        lambda: next(ClaimReader.__new__(ClaimReader).read(ClaimRange("reader", 0, 1))),
        lambda: settle_task(SettlePlan(parse_options({}, SettleOptions), columns={}, is_text=False), iter(())),
        lambda: write_task(cast(WritePlan, None), iter(())),
    ],
    ids=["inspect", "collect", "claim", "settle", "dispatch"],
)
def test_a_task_excludes_loaded_modules_from_the_collection_of_garbage(
    monkeypatch: pytest.MonkeyPatch, task: Callable[[], Any]
) -> None:
    def freeze() -> None:
        raise Frozen

    datasource._exclude_loaded.cache_clear()
    monkeypatch.setattr(datasource, "gc", SimpleNamespace(freeze=freeze))
    with pytest.raises(Frozen):
        task()


class Cycle:
    def __init__(self) -> None:
        self.itself = self


def test_what_a_task_leaves_behind_is_collected_after_the_next_one_has_begun() -> None:
    datasource.begin_task()
    left = [Cycle() for _ in range(20_000)]
    first = weakref.ref(left[0])
    datasource.begin_task()
    del left
    gc.collect()
    assert first() is None


ROOT = Path(__file__).parents[4]


def test_an_old_version_is_refused_with_both_versions_and_a_new_one_is_accepted() -> None:
    for version in ("3.3.0", "3.5.9", "3.10.0", "3.5.0.dev3"):
        with pytest.raises(SparkBullError, match=rf"expected PySpark 4\.0 or newer, .* got: {version}\. Run"):
            check_pyspark(version)
    for version in ("4.0.0", "4.1.0.dev1", "4.10.0", "5.0.0", "unknown"):
        check_pyspark(version)


def test_the_declared_requirement_is_the_minimum_version() -> None:
    declared = ConfigParser()
    declared.read(ROOT / "setup.cfg")
    assert f"pyspark>={'.'.join(map(str, MIN_PYSPARK))},<5" in declared["options.extras_require"]["spark"].splitlines()


def test_only_public_names_that_need_spark_refuse_an_old_one_and_discovery_warns() -> None:
    tried = "\n".join(
        f"try:\n  from spark_bull import {name}\nexcept Exception as error: print(repr(error))"
        for name in ("register", "Worker", "BullDataSource", "BullQueue", "Promoter")
    )
    old = "import pyspark; pyspark.__version__ = '3.5.9'"
    found = "import pyspark_bull; assert not hasattr(pyspark_bull, 'DefaultSource')"
    command = [sys.executable, "-c", f"{old}\n{found}\n{tried}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = "expected PySpark 4.0 or newer, which has data sources of Python, got: 3.5.9"
    assert f"is not available: SparkBullError: {said}" in done.stderr
    assert done.stdout.count(said) == 3


def test_a_version_has_what_the_table_says() -> None:
    found = tuple(map(int, pyspark.__version__.split(".")[:2]))
    for name, capability in CAPABILITIES.items():
        assert capability.has == (found >= tuple(map(int, capability.since.split(".")))), name
