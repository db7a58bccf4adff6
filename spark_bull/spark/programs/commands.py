"""The programs behind `spark-bull dispatch`, `replay`, `work`, `collect`, `report`; and the progress of a write."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, TextIO
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from spark_bull.core.errors import SparkBullError
from spark_bull.core.model.guards import Guard
from spark_bull.core.model.queues import WriteRecord
from spark_bull.core.queue.dispatch.write_records import read_record
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.run.progress_line import ProgressLine
from spark_bull.run.worker.program import Functions, arguments_of
from spark_bull.spark.platform.capabilities import CAPABILITIES
from spark_bull.spark.platform.jvm import is_remote
from spark_bull.spark.platform.requirements import start_query
from spark_bull.spark.staging.sink import WRITE_ID
from spark_bull.spark.work.worker import Worker

_WIDTH: Final = 30
_INTERVAL_S: Final = 0.2


@dataclass(frozen=True)
class Step:
    """A step of a write: its name, and how much of it is done."""

    what: str
    done: int
    total: int

    def __str__(self) -> str:
        share = min(1.0, self.done / self.total) if self.total else 0.0
        bar = "#" * round(share * _WIDTH)
        return f"{self.what:8} [{bar:{_WIDTH}}] {share:4.0%}  {self.done:,} of {self.total:,}"


class WriteProgress:
    """Shows the progress of the one write in this block.

    with WriteProgress(spark, [queue.handle]) as progress:
        df.write.format("bull")...
    """

    def __init__(self, spark: SparkSession, handles: Sequence[QueueHandle], stream: TextIO | None = None) -> None:
        self._spark = spark
        self._handles = handles
        self._write_id = uuid4().hex
        self._line = ProgressLine(self._text, _INTERVAL_S, stream)

    def __enter__(self) -> WriteProgress:
        self._spark.conf.set(WRITE_ID, self._write_id)
        self._line.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._spark.conf.unset(WRITE_ID)
        self._line.stop()

    def records(self) -> list[WriteRecord]:
        """The records of the write in its queues; none before it is registered."""
        return [record for handle in self._handles if (record := read_record(handle, self._write_id))]

    def step(self) -> Step | None:
        """Returns the current step of the write; None if it is unknown."""
        if records := self.records():
            return Step("adding", sum(one.done for one in records), sum(one.jobs for one in records))
        if is_remote(self._spark):
            return None
        tracker = self._spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        running = [stage for stage in stages if stage is not None]
        if not running:
            return None
        return Step(
            "staging", sum(stage.numCompletedTasks for stage in running), sum(stage.numTasks for stage in running)
        )

    def _text(self) -> str | None:
        try:
            step = self.step()
        except SparkBullError:
            # The write itself fails with the same error.
            return None
        return None if step is None else str(step)


@dataclass(frozen=True)
class Table:
    """A table of files. checkpoint: checkpoint folder; default: `_checkpoint` in the table's folder."""

    path: str
    format: str = "parquet"
    checkpoint: str | None = None


@dataclass(frozen=True)
class Collected:
    """The number of finished jobs written, and the output."""

    queue: str
    jobs: int
    output: str

    def __str__(self) -> str:
        return f"{self.jobs:,} finished jobs of {self.queue} written to {self.output}"


def results(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """Reads finished jobs with the day on which they finished, or were collected (Bull 1 stores no finish time)."""
    jobs = spark.readStream.format("bull").options(**options).load()
    return jobs.withColumn("day", f.to_date(f.coalesce("finishedOn", f.current_timestamp())))


def start(jobs: DataFrame, table: Table, every: str | None = None) -> StreamingQuery:
    """Starts a query that appends jobs to the table. every: trigger interval; None: all available jobs, once."""
    trigger: dict[str, Any] = {"processingTime": every} if every else {"availableNow": True}
    writer = jobs.writeStream.format(table.format).partitionBy("queue", "day").trigger(**trigger)
    writer = writer.option("checkpointLocation", table.checkpoint or f"{table.path.rstrip('/')}/_checkpoint")
    return start_query(lambda: writer.start(table.path))


def collect(spark: SparkSession, table: Table, options: Mapping[str, str], every: str | None = None) -> Collected:
    """Writes all finished jobs; with `every`, until the program is stopped. options: the options of the read."""
    # The number of jobs is summed from the progress of all batches, of which Spark keeps 100 by default.
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", 100_000)
    rows, is_done = 0, False
    while not is_done:
        query = start(results(spark, options), table, every)
        query.awaitTermination()
        written = sum(batch["numInputRows"] for batch in query.recentProgress)
        rows += written
        # Otherwise a run has one batch.
        is_done = every is not None or CAPABILITIES["available-now"].has or not written
    return Collected(options["queue"], rows, table.path)


@dataclass(frozen=True)
class Source:
    """Files to read, options of their format, and SQL over the view `input` that returns the columns of the jobs."""

    path: str
    format: str
    options: Mapping[str, str]
    query: str | None = None


@dataclass(frozen=True)
class Dispatched:
    """The result of a dispatch."""

    queue: str
    protocol: str
    added: int
    duplicates: int
    deduplicated: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.added:,} jobs added to queue {self.queue} ({self.protocol}), {self.duplicates:,} duplicates, "
            f"{self.deduplicated:,} deduplicated, {self.seconds:.1f} s, {self.added / self.seconds:,.0f} jobs/s"
        )


def dispatch(
    spark: SparkSession, source: Source, queue: str, handles: Sequence[QueueHandle], options: Mapping[str, Any]
) -> Dispatched:
    """Writes the rows to the queue. handles: the queue, or its shards. options: the options of the write."""
    jobs = spark.read.format(source.format).options(**source.options).load(source.path)
    if source.query:
        jobs.createOrReplaceTempView("input")
        jobs = spark.sql(source.query)
    return added(spark, jobs, queue, handles, options)


def added(
    spark: SparkSession, jobs: DataFrame, queue: str, handles: Sequence[QueueHandle], options: Mapping[str, Any]
) -> Dispatched:
    """As `dispatch`, for rows; shows the progress."""
    started = time.monotonic()
    with WriteProgress(spark, handles) as progress:
        jobs.write.format("bull").options(**options).option("queue", queue).mode("append").save()
    seconds = time.monotonic() - started
    parts = progress.records()
    return Dispatched(
        queue,
        handles[0].dialect.name,
        sum(part.added for part in parts),
        sum(part.duplicates for part in parts),
        sum(part.deduplicated for part in parts),
        seconds,
    )


#: Ids that are numbers belong to the queue; the copies have this prefix.
_PREFIX: Final = "replay-"


def replayed(table: DataFrame, condition: str | None) -> DataFrame:
    """The rows for which the condition is true, as rows of a write that adds them again."""
    rows = table.where(condition) if condition else table
    is_number = f.col("id").rlike("^[0-9]+$")
    job_id = f.when(is_number, f.concat(f.lit(_PREFIX), "id")).otherwise(f.col("id"))
    given = [f.col("data"), job_id.alias("jobId")]
    given += [f.col(name) for name in ("name", "priority") if name in table.columns]
    if "opts" in table.columns:
        given.append(f.get_json_object("opts", "$.attempts").cast("int").alias("attempts"))
    return rows.select(*given)


def replay(
    spark: SparkSession,
    path: str,
    file_format: str,
    condition: str | None,
    handle: QueueHandle,
    options: Mapping[str, Any],
) -> Dispatched:
    """Adds the jobs of a table to a queue. options: the options of the write."""
    rows = replayed(spark.read.format(file_format).load(path), condition)
    return added(spark, rows, handle.keys.queue, [handle], options)


def report(spark: SparkSession, options: Mapping[str, str], queries: Sequence[str]) -> Iterator[DataFrame]:
    """Yields the results of queries over the view `jobs`; without queries, the counts by state.

    options: the options of the read.
    """
    bull = spark.read.format("bull").options(**options)
    if not queries:
        yield bull.option("view", "counts").load().where("jobs > 0").orderBy("queue", "state")
        return
    bull.load().createOrReplaceTempView("jobs")
    yield from (spark.sql(query) for query in queries)


def spark_worker(
    spark: SparkSession,
    queues: Sequence[str],
    functions: Functions,
    options: Mapping[str, Any],
    *,
    weights: Mapping[str, int],
    env: Mapping[str, str],
    guards: Sequence[Guard],
) -> Worker:
    """Returns a worker that has not been started. Call `check` before the session is created.

    The functions are imported here, as @udf and @pandas_udf may need the session, which adds files of --py-files.
    """
    arguments = arguments_of(options) | functions.imported()
    return Worker(spark, queues=queues, weights=weights, env=env or None, guards=guards, **arguments)
