"""What the scripts of this folder share: their Spark session, how they end, and settings as name=value."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession

import spark_bull
from spark_bull import SparkBullError
from spark_bull.spark.spark_errors import first_line


@contextmanager
def session(name: str) -> Iterator[SparkSession]:
    """A session in which format("bull") is known, also when the package came with --py-files, until the block is left.

    One that is not stopped loses its executors only as its JVM shuts down, and a local cluster then starts new ones in
    vain, again and again.
    """
    # Spark starts its Python workers as `python3`, which need not be the Python that has the packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.appName(name).config("spark.ui.showConsoleProgress", "false").getOrCreate()
    try:
        spark_bull.register(spark)
        yield spark
    finally:
        spark.stop()


@contextmanager
def until_stopped(script: str) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the block without an error; errors that a user can mend end the script with one line."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        yield
    except KeyboardInterrupt:
        pass
    except (SparkBullError, AnalysisException, StreamingQueryException) as error:
        sys.exit(f"{script}: {_reason(error)}")


def _reason(error: Exception) -> str:
    """What a Python process of Spark raised, else the first line of the error; ours say all without their class."""
    if isinstance(error, SparkBullError):
        return str(error)
    line = first_line(error)
    return line.partition(": ")[2] if line.startswith("spark_bull.errors.") else line


def pairs(settings: list[str]) -> dict[str, str]:
    """['name=value', …] as a dict."""
    found = {}
    for setting in settings:
        name, separator, value = setting.partition("=")
        if not separator:
            sys.exit(f"expected name=value, got: {setting!r}")
        found[name] = value
    return found
