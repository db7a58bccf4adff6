"""The session of a program, and the JVM behind it: cores, data sources, tags and tasks of jobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource


def activate(spark: SparkSession) -> None:
    """Makes a session the active one of this thread: Spark finds data sources of Python for writes only with one.

    A thread of Python other than the one that created the session has none. Has no effect with Spark Connect, whose
    server sets it.
    """
    jvm: Any = getattr(spark, "_jvm", None) if getattr(spark, "sparkContext", None) else None
    if jvm is not None:
        SparkSession._get_j_spark_session_class(jvm).setActiveSession(spark._jsparkSession)


def is_remote(spark: SparkSession) -> bool:
    """Whether this is a session of Spark Connect, which has no SparkContext."""
    return getattr(spark, "sparkContext", None) is None


def tasks_at_once(spark: SparkSession) -> int:
    """Returns how many tasks the executors of this moment run at the same time; 0: there is no executor yet."""
    context = spark.sparkContext._jsc.sc()
    try:
        return int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))
    except Py4JError:
        # These methods are not public: a platform may refuse them.
        return parallelism(spark)


def parallelism(spark: SparkSession) -> int:
    """Returns the default parallelism of a session: the number of cores, unless it is configured.

    Spark Connect does not expose it, but splits a range into as many partitions.
    """
    if not is_remote(spark):
        return int(spark.sparkContext.defaultParallelism)
    partitions = spark.range(1 << 16).select(f.spark_partition_id().alias("partition")).distinct()
    return partitions.count()


def finds(spark: SparkSession, name: str) -> bool:
    """Whether a session has a data source of Python with this name; False if it cannot be asked, as with Connect."""
    try:
        return bool(spark._jsparkSession.sessionState().dataSourceManager().dataSourceExists(name))
    except Exception:
        # Not a public interface: a platform may refuse it.
        return False


def register_source(spark: SparkSession, source: type[DataSource]) -> None:
    """Registers a data source. PySpark 4.0 refuses one that it has found by itself, and uses that one."""
    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def add_tag(spark: SparkSession, tag: str) -> None:
    """Tags the jobs that this thread starts from now on."""
    if is_remote(spark):
        spark.addTag(tag)
    else:
        spark.sparkContext.addJobTag(tag)


def remove_tag(spark: SparkSession, tag: str) -> None:
    """Ends the effect of `add_tag` in this thread."""
    if is_remote(spark):
        spark.removeTag(tag)
    else:
        spark.sparkContext.removeJobTag(tag)


def cancel_tagged(spark: SparkSession, tag: str) -> None:
    """Cancels the jobs with a tag; may be called in any thread."""
    if is_remote(spark):
        spark.interruptTag(tag)
    else:
        spark.sparkContext.cancelJobsWithTag(tag)


def is_query_running(spark: SparkSession) -> bool:
    """Whether the streaming query goes on whose `foreachBatch` this thread runs; True if Spark does not tell."""
    if is_remote(spark):
        return True
    query, jvm = spark.sparkContext.getLocalProperty("sql.streaming.queryId"), spark.sparkContext._jvm
    if query is None or jvm is None:
        return True
    try:
        # The session of a batch has another list of queries than the session of the program.
        active = spark._jsparkSession.sharedState().activeStreamingQueries()
        running = active.get(jvm.java.util.UUID.fromString(query))
        return running is not None and bool(running.isActive())
    except Py4JError:
        # Not a public interface: a platform may refuse it.
        return True


#: Tasks of a stage that are read.
_MOST: Final = 10_000


class TaskState(NamedTuple):
    """An attempt of a task. partition: its number. started: ms since 1970. error: why it failed; '' if it has not."""

    partition: int
    host: str
    is_running: bool
    started: int
    error: str


def task_states(spark: SparkSession, tag: str, known: int) -> list[TaskState]:
    """The attempts of the tasks of the jobs with a tag, which have started; the session is none of Spark Connect.

    known: number of tasks of which the caller knows more. A stage is read only if it runs others, or has a failed one.
    """
    context = spark.sparkContext._jsc.sc()
    try:
        return list(_states(context.statusStore(), context.statusTracker().getJobIdsForTag(tag), known))
    except Py4JError:
        # The store is not public: a platform may refuse it.
        return []


def _states(store: Any, jobs: Any, known: int) -> Iterator[TaskState]:
    for job in jobs:
        for number in _items(store.job(job).stageIds()):
            stage = store.lastStageAttempt(number)
            if stage.numActiveTasks() <= known and not stage.numFailedTasks():
                continue
            for task in _items(store.taskList(number, stage.attemptId(), _MOST)):
                error, started = task.errorMessage(), task.launchTime().getTime()
                error = error.get() if error.isDefined() else ""
                yield TaskState(task.index(), task.host(), task.status() == "RUNNING", started, error)


def _items(found: Any) -> Iterator[Any]:
    return (found.apply(number) for number in range(found.size()))
