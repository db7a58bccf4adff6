"""Finds what would end a Spark program, before its JVM starts, which takes longer than any of these checks."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from glob import glob
from typing import Final

from spark_bull.core.errors import OptionError, SparkBullError
from spark_bull.core.keys import QueueKeys
from spark_bull.core.options.table import ReadOptions
from spark_bull.core.queue.monitor.find import exists, select_queues
from spark_bull.core.queue.shards.layout import selection_of
from spark_bull.core.store.connection import Connection
from spark_bull.ops.cli.doctor.machine import MIN_JAVA, find_java

#: Formats of Spark that read files; others may have names of tables as paths.
_OF_FILES: Final = frozenset({"avro", "csv", "json", "orc", "parquet", "text", "xml"})
#: Variables of programs whose Spark runs already: spark-submit has started it, or it is that of Spark Connect.
_RUNS: Final = {"PYSPARK_GATEWAY_PORT", "SPARK_REMOTE"}
#: Variables whose files may name another file system than that of this machine.
_CONFIGURES: Final = {"HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME"}


def check_java() -> None:
    """Raises SparkBullError if there is no Java that Spark could start."""
    if not _RUNS & os.environ.keys() and find_java() is None:
        raise SparkBullError(
            f"expected Java {MIN_JAVA} or newer, which Spark needs, found none: install it, and set JAVA_HOME to its "
            "folder"
        )


def check_input(path: str, file_format: str, settings: Mapping[str, str]) -> None:
    """Raises OptionError if there is no file at a path that can only be one of this machine."""
    scheme, _, rest = path.rpartition(":")
    may_be_elsewhere = (_RUNS | _CONFIGURES) & os.environ.keys() or "spark.hadoop.fs.defaultFS" in settings
    if scheme not in ("", "file") or (not scheme and may_be_elsewhere):
        return
    # Braces are alternatives to Spark, but not to Python.
    if file_format in _OF_FILES and not re.search(r"[{}\\]", path) and not (os.path.exists(rest) or glob(rest)):
        raise OptionError(f"expected --input to be a file or a folder, got: {path!r}, where there is none")


def check_queues(options: ReadOptions) -> None:
    """Raises SparkBullError if none of the queues of a read exists."""
    connection, prefix, queues = Connection(options.redis), options.prefix, selection_of(options)
    if not any(exists(connection, QueueKeys(queue, prefix)) for queue in select_queues(connection, prefix, queues)):
        raise SparkBullError(
            f"no such queue: {', '.join(queues)} (prefix {prefix}, {connection.where}); `spark-bull queues` lists all"
        )
