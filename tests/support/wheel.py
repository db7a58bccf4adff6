"""The wheel of this checkout, or the one that `make release` has built."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tools.release import WHEEL

ROOT = Path(__file__).parents[2]
#: Versions with which each extra is installed.
CONSTRAINTS = ROOT / "constraints.txt"


def released_wheel() -> Path | None:
    """The wheel of a release; None if there is none."""
    return Path(os.environ[WHEEL]) if WHEEL in os.environ else None


def build_wheel(folder: Path) -> Path:
    """Builds the wheel in an empty folder, from a copy: setuptools leaves build/ behind, and reuses its old files."""
    if (released := released_wheel()) is not None:
        return released
    source, built = folder / "source", folder / "built"
    for name in ("spark_bull", "pyspark_bull"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copyfile(ROOT / name, source / name)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(built), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel] = built.glob("*.whl")
    return wheel
