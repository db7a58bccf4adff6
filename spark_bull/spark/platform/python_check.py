"""Checks that the Python interpreter which Spark starts for sources and tasks has the required packages."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

from pyspark import SparkContext

log = logging.getLogger("spark_bull")

#: Packages that cannot be sent with --py-files.
REQUIRED: Final = ("msgpack", "pandas", "pyarrow", "redis")
#: Prints those of the modules in its arguments that are not found.
_SCRIPT: Final = (
    "import sys; from importlib.util import find_spec; print(*[m for m in sys.argv[1:] if not find_spec(m)])"
)
_TIMEOUT_S: Final = 60.0


def check_python() -> bool:
    """Returns whether Spark's Python interpreter has all required packages; logs a warning once if not.

    Checked only with a local master, and only for another interpreter than the running one. Not checked with Spark
    Connect, where this process has no SparkContext.
    """
    context = SparkContext._active_spark_context
    if context is None or not (context.master or "").startswith("local"):
        return True
    return _has_all(context.pythonExec)


@cache
def _has_all(python: str) -> bool:
    path = shutil.which(python)
    if path is None:
        _warn(python, "does not exist")
        return False
    if _is_running(path):
        return True
    missing = _missing(path)
    if missing:
        _warn(python if python == path else f"{python} ({path})", f"lacks {', '.join(missing)}")
    return not missing


def _warn(python: str, why: str) -> None:
    log.warning(
        "Spark starts %s for its Python processes, which %s: set the environment variable PYSPARK_PYTHON=%s before the "
        "session is created",
        python,
        why,
        sys.executable,
    )


def _is_running(path: str) -> bool:
    """Whether this is the running interpreter. Environments may share an executable, so its folder is compared, too."""
    same_folder = os.path.abspath(os.path.dirname(path)) == os.path.abspath(os.path.dirname(sys.executable))
    return same_folder and os.path.samefile(path, sys.executable)


def _missing(path: str) -> list[str]:
    """Returns the modules that an interpreter does not find; empty if it cannot be run."""
    # A package from --py-files is in an archive, which Spark passes to its processes.
    installed = ("spark_bull",) if Path(__file__).is_file() else ()
    try:
        command = [path, "-c", _SCRIPT, *REQUIRED, *installed]
        completed = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return completed.stdout.split()
