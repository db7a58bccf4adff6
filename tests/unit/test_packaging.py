"""The contents of the wheel: missing Lua files or type markers would show only after an installation."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # From a copy: setuptools leaves build/ behind, and reuses files of an old one.
    source = tmp_path_factory.mktemp("source")
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE", "spark_bull", "pyspark_bull"):
        copy_tree(ROOT / name, source / name)
    built = tmp_path_factory.mktemp("built")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(built), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel] = built.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with ZipFile(wheel) as archive:
        return set(archive.namelist())


def copy_tree(source: Path, target: Path) -> None:
    if source.is_file():
        target.write_bytes(source.read_bytes())
    elif source.is_dir() and source.name != "__pycache__":
        target.mkdir()
        for child in source.iterdir():
            copy_tree(child, target / child.name)


def files(pattern: str) -> set[str]:
    return {path.relative_to(ROOT).as_posix() for path in ROOT.glob(pattern)}


def test_every_lua_script_is_shipped(names: set[str]) -> None:
    scripts = files("spark_bull/lua/**/*.lua")
    assert scripts
    assert scripts <= names


def test_every_module_and_the_type_marker_are_shipped(names: set[str]) -> None:
    types = {"spark_bull/py.typed", "spark_bull/__init__.pyi"}
    assert files("spark_bull/**/*.py") | types | {"pyspark_bull/__init__.py"} <= names


def test_the_page_is_shipped_with_its_libraries_and_their_licences(names: set[str]) -> None:
    page = {name for name in files("spark_bull/web/page/**/*.*") if not name.endswith((".py", ".pyc"))}
    libraries = {name.split("/")[-1].split(".")[0] for name in page if "/vendor/" in name and name.endswith(".js")}
    licences = {name.split("/")[-1].split(".")[0] for name in page if name.endswith(".LICENSE")}
    assert libraries
    assert libraries <= licences
    assert page <= names


def test_the_demo_is_shipped_with_its_worker_for_node(names: set[str]) -> None:
    assert files("spark_bull/spark/programs/demo/*.*") <= names


def test_the_notebooks_are_shipped(names: set[str]) -> None:
    notebooks = files("spark_bull/notebooks/*.ipynb")
    assert notebooks
    assert notebooks <= names


def test_nothing_else_is_shipped(names: set[str]) -> None:
    assert {name.split("/")[0].split("-")[0] for name in names} == {"spark_bull", "pyspark_bull"}


def test_the_command_is_declared(wheel: Path) -> None:
    assert "spark-bull = spark_bull.cli:main" in read(wheel, "entry_points.txt")


def test_the_licence_is_shipped(wheel: Path, names: set[str]) -> None:
    assert any(name.endswith("LICENSE") for name in names)
    assert "Apache-2.0" in read(wheel, "METADATA")


def test_the_package_can_be_imported_from_the_wheel(wheel: Path) -> None:
    program = "import spark_bull.errors; print(spark_bull.errors.__file__)"
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
