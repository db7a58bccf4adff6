"""The Spark session of the scripts in this folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

import spark_bull


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


def pairs(settings: list[str]) -> dict[str, str]:
    """['name=value', …] as a dict."""
    found = {}
    for setting in settings:
        name, separator, value = setting.partition("=")
        if not separator:
            sys.exit(f"expected name=value, got: {setting!r}")
        found[name] = value
    return found
