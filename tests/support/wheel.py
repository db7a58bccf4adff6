"""The wheel of this checkout, or the one that `make release` has built."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tools.release import WHEEL

ROOT = Path(__file__).parents[2]
#: Versions with which each extra is installed.
CONSTRAINTS = ROOT / "constraints.txt"
PARTS = ("setup.cfg", "pyproject.toml", "README.md", "LICENSE", "spark_bull", "pyspark_bull")


def released_wheel() -> Path | None:
    """The wheel of a release; None if there is none."""
    return Path(os.environ[WHEEL]) if WHEEL in os.environ else None


def build_wheel(folder: Path) -> Path:
    """Builds the wheel in an empty folder, from a copy: setuptools leaves build/ behind, and reuses its old files."""
    if (released := released_wheel()) is not None:
        return released
    source, built = folder / "source", folder / "built"
    source.mkdir()
    for name in PARTS:
        copy_tree(ROOT / name, source / name)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(built), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel] = built.glob("*.whl")
    return wheel


def copy_tree(source: Path, target: Path) -> None:
    if source.is_file():
        target.write_bytes(source.read_bytes())
    elif source.is_dir() and source.name != "__pycache__":
        target.mkdir()
        for child in source.iterdir():
            copy_tree(child, target / child.name)
