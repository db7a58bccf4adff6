"""What the programs share: a Spark session, and errors of Spark that a user can mend."""

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
from spark_bull.spark.provider import register
from spark_bull.spark.spark_errors import first_line

_NONE: Final[Mapping[str, str]] = MappingProxyType({})


@contextmanager
def session(name: str, master: str | None = None, settings: Mapping[str, str] = _NONE) -> Iterator[SparkSession]:
    """A session in which format("bull") is known, also when the package came with --py-files, until the block is left.

    One that is not stopped loses its executors only as its JVM shuts down, and a local cluster then starts new ones in
    vain, again and again.
    """
    # Spark starts its Python workers as `python3`, which need not be the Python that has the packages.
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
    """Raises what a user can mend in a query as SparkBullError, with the line that says most."""
    try:
        yield
    except (AnalysisException, StreamingQueryException) as error:
        line = first_line(error)
        # What a Python process of Spark raised, without its class if it is one of ours.
        reason = line.partition(": ")[2] if line.startswith("spark_bull.errors.") else line
        raise SparkBullError(reason) from error
