"""What the tasks of Spark jobs do, and why they have failed: the driver knows it before their job ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

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
