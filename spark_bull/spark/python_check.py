"""Whether the Python that Spark starts for sources and tasks has what they need; it may be another than runs here."""

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

#: Modules that are installed, not sent along.
NEEDED: Final = ("msgpack", "pandas", "pyarrow", "redis")
#: Prints which of the modules named by its arguments can't be found.
_LOOK: Final = "import sys; from importlib.util import find_spec; print(*[m for m in sys.argv[1:] if not find_spec(m)])"
_LOOK_S: Final = 60.0


def check_python() -> bool:
    """Whether Spark's Python has all packages, as far as can be told from here; if not, the log says so once.

    It is looked at only on a local master, and only when it is not the Python that runs here; never with Spark Connect,
    where this process has no context.
    """
    context = SparkContext._active_spark_context
    if context is None or not (context.master or "").startswith("local"):
        return True
    return _has_all(context.pythonExec)


@cache
def _has_all(python: str) -> bool:
    path = shutil.which(python)
    if path is None:
        _warn(python, "isn't there")
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
        'session is made, and format("bull") works there, too',
        python,
        why,
        sys.executable,
    )


def _is_running(path: str) -> bool:
    """Whether it is the Python that runs here. Environments share one program, so its folder counts as well."""
    same_folder = os.path.abspath(os.path.dirname(path)) == os.path.abspath(os.path.dirname(sys.executable))
    return same_folder and os.path.samefile(path, sys.executable)


def _missing(path: str) -> list[str]:
    """The modules that a Python can't find; none when that can't be told."""
    # A package that came with --py-files is in an archive, and Spark gives it to its processes.
    installed = ("spark_bull",) if Path(__file__).is_file() else ()
    try:
        command = [path, "-c", _LOOK, *NEEDED, *installed]
        looked = subprocess.run(command, capture_output=True, text=True, timeout=_LOOK_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return looked.stdout.split()
