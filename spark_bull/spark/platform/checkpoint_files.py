"""How Spark writes the checkpoint of a query whose files nobody reads after its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

_SETTING: Final = "spark.sql.streaming.checkpointFileManagerClass"
_PACKAGE: Final = "org.apache.spark.sql.execution.streaming"
#: Since Spark 4.1, and before.
_MANAGERS: Final = tuple(f"{_PACKAGE}.{name}FileSystemBasedCheckpointFileManager" for name in ("checkpointing.", ""))
#: Held while a session has the setting.
_SETTING_UP: Final = Lock()


@contextmanager
def plain_checkpoint_files(spark: SparkSession) -> Iterator[None]:
    """Lets a query that is started in this block write its files with few processes; not with Spark Connect.

    On a local disk, Spark's default starts `readlink` or `chmod` twenty times per micro-batch. The query keeps the
    setting, which the session has during the block only: so do queries that others start in it meanwhile.
    """
    manager = _manager_of(spark)
    with _SETTING_UP:
        if manager is None or spark.conf.get(_SETTING, None) is not None:
            yield
            return
        spark.conf.set(_SETTING, manager)
        try:
            yield
        finally:
            spark.conf.unset(_SETTING)


def _manager_of(spark: SparkSession) -> str | None:
    """The name of a class that Spark has."""
    jvm: Any = spark.sparkContext._jvm
    try:
        return next((name for name in _MANAGERS if jvm.org.apache.spark.util.Utils.classIsLoadable(name)), None)
    except (Py4JError, TypeError):
        # Neither the class nor the method is public.
        return None
