"""Checks that PySpark is new enough, and that its workers have a Python with the required packages.

A streaming query is started again if the Python process of its source has connected too late.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

from pyspark import SparkContext
from pyspark.sql.streaming.query import StreamingQuery

from spark_bull.core.errors import SparkBullError

log = logging.getLogger("spark_bull")


MIN_PYSPARK: Final = (4, 0)


def check_pyspark(version: str) -> None:
    """Raises SparkBullError for an older version, such as `4.1.0`. A version that cannot be parsed is accepted."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers and (int(numbers[1]), int(numbers[2])) < MIN_PYSPARK:
        oldest = ".".join(map(str, MIN_PYSPARK))
        raise SparkBullError(
            f"expected PySpark {oldest} or newer, which has data sources of Python, got: {version}. Run `pip install "
            f"'pyspark>={oldest}'`, and use a Spark cluster of the same version. BullQueue, LocalWorker, Promoter and "
            "the commands for queues need no Spark"
        )


#: Names the interpreter; without it, Spark starts the first `python3` of PATH.
VARIABLE: Final = "PYSPARK_PYTHON"

#: Packages that cannot be sent with --py-files.
REQUIRED: Final = ("msgpack", "pandas", "pyarrow", "redis")
#: Prints the modules in its arguments that are not found, and others that cannot be imported with the reason.
_SCRIPT: Final = """
import sys
for name in sys.argv[1:]:
    try:
        __import__(name)
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}" if str(error).strip() else repr(error)
        print(name if getattr(error, "name", None) == name else f"{name} ({reason})")
"""
_TIMEOUT_S: Final = 60.0


def ensure_python() -> bool:
    """Lets Spark start the running interpreter if the user has named none, as in an environment that is not activated.

    Only with a local master: other machines may not have it. Has no effect with Spark Connect, where this process has
    no SparkContext. Returns whether that is the interpreter with which Spark has looked for data sources. Raises
    SparkBullError if the named interpreter lacks a package.
    """
    context = SparkContext._active_spark_context
    if context is None or not (context.master or "").startswith("local"):
        return True
    if VARIABLE in os.environ:
        _check(context.pythonExec)
        return True
    found = shutil.which(context.pythonExec)
    if not sys.executable or (found is not None and _is_running(found)):
        return True
    context.pythonExec = sys.executable
    return False


@cache
def _check(python: str, *, also_running: bool = False) -> None:
    """Raises SparkBullError if this interpreter lacks a package, or cannot import one.

    also_running: whether the running interpreter is checked, too, which may not have imported all of them.
    """
    path = shutil.which(python)
    if path is None:
        raise _error(python, "does not exist")
    is_running = _is_running(path)
    missing = [] if is_running and not also_running else _missing(path)
    if missing and is_running:
        raise SparkBullError(
            f"expected the Python of this program, which Spark starts for data sources, to have the packages of "
            f"spark_bull, but {python} lacks {', '.join(missing)}: install them again"
        )
    if missing:
        raise _error(python if python == path else f"{python} ({path})", f"lacks {', '.join(missing)}")


def _error(python: str, why: str) -> SparkBullError:
    return SparkBullError(
        f"expected PYSPARK_PYTHON to name a Python with the packages of spark_bull, but {python} {why}: set it to "
        f"{sys.executable} before the session is created, or leave it out"
    )


def _is_running(path: str) -> bool:
    """Whether this is the running interpreter. Environments may share an executable, so its folder is compared, too."""
    same_folder = os.path.abspath(os.path.dirname(path)) == os.path.abspath(os.path.dirname(sys.executable))
    return same_folder and os.path.samefile(path, sys.executable)


def _missing(path: str) -> list[str]:
    """Returns the modules that an interpreter cannot import; empty if it cannot be run."""
    # A package from --py-files is in an archive, which Spark passes to its processes.
    installed = ("spark_bull",) if Path(__file__).is_file() else ()
    try:
        command = [path, "-c", _SCRIPT, *REQUIRED, *installed]
        completed = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return completed.stdout.splitlines()


#: Error of Spark if the Python process of a source has not connected within ten seconds, which is not configurable.
LATE: Final = "Python worker failed to connect back"
#: Error of that process if Spark did not answer in time.
UNANSWERED: Final = "CANNOT_OPEN_SOCKET"
MAX_ATTEMPTS: Final = 10
#: Prefixes of the status message of a query that is starting or ending.
_TRANSITIONAL: Final = ("Initializing", "Stopped", "Terminated")
_POLL_S: Final = 0.05


def is_late(error: Exception | None) -> bool:
    """Whether a query failed because Spark and the Python process of a source did not connect in time."""
    return any(text in str(error) for text in (LATE, UNANSWERED))


def start_query(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Starts a query, and waits until its sources are running or it has ended.

    A query that failed because a source's Python process connected too late has read nothing and is started again, up
    to MAX_ATTEMPTS times in total. Raises SparkBullError if the Python interpreter lacks packages: its process ends
    before it connects, and Spark does not say why.
    """
    for _ in range(1, MAX_ATTEMPTS):
        query = start()
        while query.isActive and query.status["message"].startswith(_TRANSITIONAL):
            time.sleep(_POLL_S)
        if query.isActive or not is_late(query.exception()):
            return query
        ensure_python()
        if SparkContext._active_spark_context is not None:
            # Spark starts the sources that it finds by itself with the Python of the driver.
            python = os.environ.get("PYSPARK_DRIVER_PYTHON", SparkContext._active_spark_context.pythonExec)
            _check(python, also_running=True)
        log.warning("query %s: the Python process of its source connected too late, starting it again", query.name)
    return start()
