"""A task attempt of a write that stages its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from spark_bull.core.errors import SparkBullError, restated
from spark_bull.core.queue.dispatch.writes import Identity
from spark_bull.core.store.connection import Connection
from spark_bull.core.store.settings import settings_of
from spark_bull.spark.platform.lazy_arrow import pa
from spark_bull.spark.platform.python_worker import begin_task
from spark_bull.spark.staging.attempt import Attempt, this_attempt, this_batch
from spark_bull.spark.staging.messages import TaskPart, Written
from spark_bull.spark.staging.outbox import Outbox
from spark_bull.spark.staging.plan import StagedPlan

P = TypeVar("P", bound=StagedPlan)


class Task(Protocol):
    """Stages the rows of one attempt, or adds them."""

    def take(self, batch: pa.RecordBatch, numbers: range) -> None:
        """Takes the next rows. numbers: theirs, for errors."""

    def finish(self) -> tuple[TaskPart, ...]:
        """Ends the task; returns what it has written to each queue, or what the outbox is about to stage for it."""


def run_task(
    plan: P, batches: Iterator[pa.RecordBatch], task_of: Callable[[P, Attempt, Identity | None, Outbox], Task]
) -> Written:
    """Runs an attempt; its rows are dropped if an earlier write of its identity was committed."""
    begin_task()
    attempt, identity = this_attempt(plan.write_id), this_batch() if plan.is_stream else plan.identity
    connection = Connection(settings_of(plan.options))
    started_on, outbox = connection.now_ms(), Outbox(connection, plan.options["stageTtlMs"])
    if plan.replayed or (plan.handle is not None and plan.has_written(plan.handle, identity)):
        for _ in batches:
            pass
        return Written(plan.write_id, (), started_on, identity)
    task, seen = task_of(plan, attempt, identity, outbox), 0
    try:
        for batch in batches:
            task.take(batch, range(seen, seen + batch.num_rows))
            seen += batch.num_rows
        parts = task.finish()
        outbox.flush()
        return Written(plan.write_id, parts, started_on, identity)
    except SparkBullError as error:
        raise restated(error, f"partition {attempt.partition}, {error}") from error
