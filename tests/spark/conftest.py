"""One Spark session for all tests of this folder, since it takes seconds to start."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import spark_bull
from spark_bull.spark.platform.capabilities import CAPABILITIES
from tests.support.fork_server import VARIABLE
from tests.support.jvm import CONF_ARGUMENTS


def pytest_itemcollected(item: pytest.Item) -> None:
    """Called for the tests of this folder only."""
    item.add_marker(pytest.mark.spark)
    for marker in item.iter_markers("capability"):
        capability = CAPABILITIES[marker.args[0]]
        item.add_marker(pytest.mark.skipif(not capability.has, reason=f"since PySpark {capability.since}"))


@pytest.fixture(scope="session")
def spark(python_forks: Path) -> Iterator[SparkSession]:
    """A session with two cores, one attempt per task, and no UI. Its Python processes have imported their modules."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        # Where a column was made, for errors: three calls of the JVM and a look at the stack for each operation on one.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        # For how long, in s, the JVM waits until Python fetches rows.
        "spark.python.authenticate.socketTimeout": os.environ["SPARK_AUTH_SOCKET_TIMEOUT"],
        # Times are shown alike on every machine.
        "spark.sql.session.timeZone": "UTC",
        # Spark starts a program, chmod, for each file that it writes. These write no second file with checksums.
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    }
    builder = SparkSession.builder.master("local[2]").appName("tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(VARIABLE, str(python_forks))
        environment.setenv("PYSPARK_SUBMIT_ARGS", shlex.join((*CONF_ARGUMENTS, "pyspark-shell")))
        session = builder.getOrCreate()
    spark_bull.register(session)
    yield session
    session.stop()


class Bull:
    """`format("bull")` with the Redis and the prefix of the test."""

    def __init__(self, spark: SparkSession, url: str, prefix: str) -> None:
        self.spark = spark
        self.options = {"url": url, "prefix": prefix}

    def read(self, queue: str | None = "q", schema: str | None = None, **options: object) -> DataFrame:
        reader = self.spark.read.format("bull").options(**self.options)
        if queue is not None:
            reader = reader.option("queue", queue)
        for name, value in options.items():
            reader = reader.option(name, str(value))
        return (reader.schema(schema) if schema else reader).load()

    def write(self, frame: DataFrame, queue: str | None = "q", **options: object) -> None:
        writer = frame.write.format("bull").options(**self.options).mode("append")
        if queue is not None:
            writer = writer.option("queue", queue)
        for name, value in options.items():
            writer = writer.option(name, str(value))
        writer.save()


@pytest.fixture
def bull(spark: SparkSession, redis_url: str, prefix: str) -> Bull:
    return Bull(spark, redis_url, prefix)
