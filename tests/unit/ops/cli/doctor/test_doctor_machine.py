"""`spark-bull doctor` checks Java, Python and packages of this machine, without importing them."""

from __future__ import annotations

import re
import subprocess
import sys
import venv
from configparser import ConfigParser
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from unittest.mock import Mock

import pytest

from spark_bull.core.version import VERSION
from spark_bull.ops.cli.doctor import machine
from spark_bull.ops.cli.doctor.finding import Finding
from tools.compiled_pyspark import FILE

ROOT = Path(__file__).parents[5]


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("printed", "level", "found"),
    [
        ('java version "1.8.0_292"', "problem", "Java 8 at .*: expected 17 or newer"),
        ('openjdk version "21" 2023-09-19', "ok", "Java 21 at "),
        ("broken", "problem", "does not print its version: 'broken'"),
        (None, "warning", "no Java in JAVA_HOME: Spark does not start here"),
    ],
)
def test_the_version_of_java_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str | None, level: str, found: str
) -> None:
    if printed:
        program(tmp_path / "bin" / "java", f"echo '{printed}' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    (finding,) = machine.java()
    assert finding.level == level
    assert re.search(found, finding.found)


def test_the_python_that_spark_starts_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def of_spark(python: object) -> Finding:
        monkeypatch.setenv("PYSPARK_PYTHON", str(python))
        own, other = machine.python()
        assert own.level == "ok"
        assert sys.executable in own.found
        return other

    assert of_spark(sys.executable).level == "ok"
    missing = of_spark("/nowhere/python")
    assert (missing.level, missing.advice) == ("problem", f"export PYSPARK_PYTHON={sys.executable}")
    assert "which is Python 2.7" in of_spark(program(tmp_path / "old", "echo 2.7")).found
    monkeypatch.delenv("PYTHONPATH", raising=False)
    venv.EnvBuilder(with_pip=False, symlinks=True).create(tmp_path / "empty")
    empty = of_spark(tmp_path / "empty" / "bin" / "python")
    assert (empty.level, "lacks pyspark, pandas, pyarrow, redis, msgpack" in empty.found) == ("problem", True)


def test_the_versions_are_those_that_the_package_requires() -> None:
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    declared = config["options"]["install_requires"] + config["options.extras_require"]["spark"]
    required = dict(re.findall(r"^(\w+)(?:\[\w+\])?(\S*)$", declared, re.MULTILINE))
    assert machine.requirements() == required
    assert all(required[name] for name in (*machine.PACKAGES, *machine.OF_SPARK))


def test_old_new_and_missing_packages_are_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {finding.level for finding in machine.packages()} == {"ok"}
    bounds = {"redis": ">=99.1", "pandas": ">=2.2,<2.2", "pyspark": ">=4.0,<99", "no-such-package": ">=1"}
    monkeypatch.setattr(machine, "requirements", lambda: bounds)
    monkeypatch.setattr(machine, "PACKAGES", ("redis",))
    monkeypatch.setattr(machine, "OF_SPARK", ("pandas", "pyspark", "no-such-package"))
    own, old, new, right, missing = machine.packages()
    assert own.found == f"spark-bull {VERSION}"
    assert [finding.level for finding in (old, new, right, missing)] == ["problem", "problem", "ok", "problem"]
    assert old.found.endswith("expected redis>=99.1")
    assert old.advice == f"{sys.executable} -m pip install 'redis>=99.1'"
    assert new.found.endswith("expected pandas>=2.2,<2.2")
    assert missing.found == "no-such-package is not installed: expected no-such-package>=1"
    monkeypatch.setattr(machine, "OF_SPARK", ())
    _, without, _ = machine.packages()
    assert "no Spark here: `pip install 'spark-bull[spark]'`" in without.found
    # An archive without metadata accepts all versions.
    monkeypatch.undo()
    monkeypatch.setattr(machine, "requires", Mock(side_effect=PackageNotFoundError))
    assert {finding.level for finding in machine.packages()} == {"ok"}


def compiled_pyspark(folder: Path) -> str:
    code = (
        "import sys; from spark_bull.ops.cli.doctor.machine import compiled_pyspark, packages;"
        "print(*compiled_pyspark()); [*packages()]; assert not {'pyspark', 'pandas', 'pyarrow'} & set(sys.modules)"
    )
    environment = {"PYTHONPATH": f"{folder}:{ROOT}"}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_the_line_for_compiled_modules_is_looked_for_without_importing_pyspark(tmp_path: Path) -> None:
    package = tmp_path / "pyspark"
    (package / "python" / "lib").mkdir(parents=True)
    (package / "__init__.py").touch()
    assert compiled_pyspark(tmp_path) == "\n"
    (package / "python" / "lib" / "pyspark.zip").touch()
    assert str(tmp_path / FILE) in compiled_pyspark(tmp_path)
    (tmp_path / FILE).touch()
    assert "import the compiled PySpark" in compiled_pyspark(tmp_path)
