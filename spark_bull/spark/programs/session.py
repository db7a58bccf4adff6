"""The Spark session of the programs, and the translation of Spark's errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final

from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession

from spark_bull.errors import SparkBullError
from spark_bull.spark.platform.spark_errors import first_line
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
    spark = (builder.master(master) if master else builder).getOrCreate()
    try:
        register(spark)
        yield spark
    finally:
        spark.stop()


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """Translates errors of a query to SparkBullError with the most relevant line."""
    try:
        yield
    except (AnalysisException, StreamingQueryException) as error:
        line = first_line(error)
        # The line of an error of this package starts with its class.
        reason = line.partition(": ")[2] if line.startswith("spark_bull.errors.") else line
        raise SparkBullError(reason) from error
