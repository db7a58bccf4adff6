"""The contents of the wheel: missing Lua files or type markers would show only after an installation."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.support.wheel import build_wheel

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with ZipFile(wheel) as archive:
        return set(archive.namelist())


def files(pattern: str) -> set[str]:
    return {path.relative_to(ROOT).as_posix() for path in ROOT.glob(pattern)}


def test_all_that_the_package_needs_is_shipped_and_nothing_else(wheel: Path, names: set[str]) -> None:
    page = {name for name in files("spark_bull/ops/web/page/**/*.*") if not name.endswith((".py", ".pyc"))}
    libraries = {name.split("/")[-1].split(".")[0] for name in page if "/vendor/" in name and name.endswith(".js")}
    assert libraries
    types = {"spark_bull/py.typed", "spark_bull/__init__.pyi", "pyspark_bull/__init__.py"}
    patterns = ("**/*.py", "core/lua/**/*.lua", "spark/programs/demo/*.*", "notebooks/*.ipynb")
    for shipped in (page, types, *(files(f"spark_bull/{pattern}") for pattern in patterns)):
        assert shipped
        assert shipped <= names, shipped - names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"spark_bull", "pyspark_bull"}
    licences = {name.split("/")[-1] for name in names if "/licenses/" in name}
    assert licences == {"LICENSE", *(f"{library}.LICENSE" for library in libraries)}
    assert "Apache-2.0" in read(wheel, "METADATA")
    assert "spark-bull = spark_bull.ops.cli:main" in read(wheel, "entry_points.txt")


def test_the_package_can_be_imported_from_the_wheel(wheel: Path) -> None:
    program = "import spark_bull.core.errors; print(spark_bull.core.errors.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(wheel)},
        cwd=wheel.parent,
        capture_output=True,
        text=True,
    )
    assert done.stdout.startswith(str(wheel)), done.stderr


def read(wheel: Path, metadata: str) -> str:
    with ZipFile(wheel) as archive:
        [name] = (name for name in archive.namelist() if name.endswith(f".dist-info/{metadata}"))
        return archive.read(name).decode()
