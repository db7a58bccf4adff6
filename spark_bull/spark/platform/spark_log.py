"""Levels of the loggers of Spark's JVM."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pyspark.sql import SparkSession


@contextmanager
def errors_only(spark: SparkSession, logger: str) -> Iterator[None]:
    """Hides warnings of a logger of the JVM in this block. Has no effect on a server of Spark Connect."""
    jvm: Any = getattr(spark, "_jvm", None) if getattr(spark, "sparkContext", None) else None
    if jvm is None:
        yield
        return
    previous = None
    # Platforms may have another logging library: the warning is harmless.
    with suppress(Exception):
        log4j = jvm.org.apache.logging.log4j
        previous = log4j.LogManager.getLogger(logger).getLevel()
        log4j.core.config.Configurator.setLevel(logger, log4j.Level.ERROR)
    try:
        yield
    finally:
        if previous is not None:
            with suppress(Exception):
                jvm.org.apache.logging.log4j.core.config.Configurator.setLevel(logger, previous)
