"""The active session of a thread of the driver."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


def activate(spark: SparkSession) -> None:
    """Makes a session the active one of this thread: Spark finds data sources of Python for writes only with one.

    A thread of Python other than the one that created the session has none. Has no effect with Spark Connect, whose
    server sets it.
    """
    jvm: Any = getattr(spark, "_jvm", None) if getattr(spark, "sparkContext", None) else None
    if jvm is not None:
        SparkSession._get_j_spark_session_class(jvm).setActiveSession(spark._jsparkSession)
