"""The Spark session of the programs, and the translation of Spark's errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from subprocess import Popen
from traceback import walk_tb
from types import MappingProxyType
from typing import Final

from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession

from spark_bull.core.errors import SparkBullError
from spark_bull.spark.platform.spark_errors import reason_line
from spark_bull.spark.provider import register

_NONE: Final[Mapping[str, str]] = MappingProxyType({})


@contextmanager
def session(name: str, master: str | None = None, settings: Mapping[str, str] = _NONE) -> Iterator[SparkSession]:
    """Opens a session with format("bull"), also if the package came with --py-files, and stops it after the block.

    Without stop(), executors are lost when the JVM shuts down, and a local cluster keeps starting new ones.
    """
    # By default Spark starts `python3`, which may be another interpreter without the packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name).config("spark.ui.showConsoleProgress", "false")
    for setting, value in settings.items():
        builder = builder.config(setting, value)
    spark = _started(builder.master(master) if master else builder)
    try:
        register(spark)
        yield spark
    finally:
        spark.stop()


def _started(builder: SparkSession.Builder) -> SparkSession:
    """Starts Spark. If that is interrupted, ends the JVM, which would stay as it can't tell its port any more."""
    try:
        return builder.getOrCreate()
    except BaseException as error:
        for frame, _ in walk_tb(error.__traceback__):
            # PySpark keeps the process in a local variable until the JVM has told its port.
            for process in (frame.f_locals.get("proc"), frame.f_locals.get("self")):
                if isinstance(process, Popen):
                    process.kill()
                    process.wait()
        raise


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """Translates errors of a query to SparkBullError with the most relevant line."""
    try:
        yield
    except (AnalysisException, StreamingQueryException) as error:
        raise SparkBullError(reason_line(error)) from error
