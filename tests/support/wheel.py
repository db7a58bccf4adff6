"""The wheel of this checkout."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PARTS = ("setup.cfg", "pyproject.toml", "README.md", "LICENSE", "spark_bull", "pyspark_bull")


def build_wheel(folder: Path) -> Path:
    """Builds the wheel in an empty folder, from a copy: setuptools leaves build/ behind, and reuses its old files."""
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
