"""One Spark session for all tests of this folder, since it takes seconds to start."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

import spark_bull
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.spark.platform.capabilities import CAPABILITIES
from spark_bull.spark.platform.requirements import start_query
from tests.support.fork_server import VARIABLE
from tests.support.spark_submit import CONF_ARGUMENTS
from tests.support.wait import PATIENCE_S, wait_until
from tests.support.worker import settled

OpenQueue = Callable[..., BullQueue]


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
        self.options: dict[str, Any] = {"url": url, "prefix": prefix}

    def given(self, queue: str | None = "q", **options: object) -> dict[str, str]:
        """All options of a read or write; without `queue` if it is None."""
        named = {} if queue is None else {"queue": queue}
        return {name: str(value) for name, value in {**self.options, **named, **options}.items()}

    def read(self, queue: str | None = "q", schema: str | None = None, **options: object) -> DataFrame:
        reader = self.spark.read.format("bull").options(**self.given(queue, **options))
        return (reader.schema(schema) if schema else reader).load()

    def stream(self, queue: str | None = "q", schema: str | None = None, **options: object) -> DataFrame:
        reader = self.spark.readStream.format("bull").options(**self.given(queue, **options))
        return (reader.schema(schema) if schema else reader).load()

    def write(self, frame: DataFrame, queue: str | None = "q", **options: object) -> None:
        frame.write.format("bull").options(**self.given(queue, **options)).mode("append").save()


def collecting(stream: DataFrame, folder: Path, **trigger: Any) -> Any:
    """A query that adds rows to the table `rows` in a folder."""
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    return start_query(lambda: writer.trigger(**trigger).start(str(folder / "rows")))


def collected(stream: DataFrame, folder: Path) -> list[Row]:
    """Adds the rows that are there to this table; returns all rows of the table."""
    assert collecting(stream, folder, availableNow=True).awaitTermination(PATIENCE_S)
    return stream.sparkSession.read.parquet(str(folder / "rows")).collect()


def refusal(bull: Bull, frame: DataFrame, queue: str | None = "q", **options: object) -> str:
    """The message of a write that must fail."""
    with pytest.raises(PySparkException) as raised:
        bull.write(frame, queue, **options)
    return str(raised.value)


def work_off(queue: BullQueue) -> dict[str, int]:
    """Waits until all jobs are completed or failed; returns the counts by state."""
    wait_until(lambda: settled(queue), "all jobs to end")
    return {state: count for state, count in queue.counts().items() if count}


class Files:
    """JSON files that a stream reads, one per batch, and the checkpoint of the query that writes it to queues."""

    def __init__(self, bull: Bull, folder: Path) -> None:
        self.bull, self.checkpoint, self._files = bull, folder / "checkpoint", folder / "in"
        self._files.mkdir()

    def put(self, *rows: Mapping[str, object] | int) -> None:
        """Adds a file; a number is a row with this `n`."""
        lines = [json.dumps({"n": row} if isinstance(row, int) else row) for row in rows]
        (self._files / f"{len(list(self._files.iterdir()))}.json").write_text("\n".join(lines), "utf-8")

    def rows(self, schema: str = "n LONG") -> DataFrame:
        return self.bull.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(self._files))

    def write(self, rows: DataFrame | None = None, queue: str | None = "q", **options: object) -> None:
        """Writes all files with availableNow."""
        given = self.bull.given(queue, **{"checkpointLocation": self.checkpoint, **options})
        writer = (self.rows() if rows is None else rows).writeStream.format("bull").options(**given)
        writer.trigger(availableNow=True).start().awaitTermination(PATIENCE_S)

    def write_with_a_repetition(
        self, size: int, rows: Callable[[], DataFrame], queue: str | None = "q", **options: object
    ) -> None:
        """Writes two batches of `size` rows each, then the second one again and a third one."""
        self.put(*range(size))
        self.put(*range(size, 2 * size))
        self.write(rows(), queue, **options)
        self.forget_last_commit()
        self.put(*range(2 * size, 3 * size))
        self.write(rows(), queue, **options)

    def forget_last_commit(self) -> None:
        """As if Spark had died after our commit and before its own: it repeats the last batch."""
        commits = self.checkpoint / "commits"
        last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
        for name in (f"{last}", f".{last}.crc"):
            (commits / name).unlink(missing_ok=True)


@pytest.fixture
def files(bull: Bull, tmp_path: Path) -> Files:
    return Files(bull, tmp_path)


@pytest.fixture
def bull(spark: SparkSession, redis_url: str, prefix: str) -> Bull:
    return Bull(spark, redis_url, prefix)
