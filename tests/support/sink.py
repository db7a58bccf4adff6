"""The sink without a Spark session: its tasks and its commit are called as Spark does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark_bull.queue.writes import Identity
from spark_bull.spark.dispatch.commit import abort_write, commit_write
from spark_bull.spark.dispatch.plan import WritePlan, plan_write
from spark_bull.spark.dispatch.task import write_task
from spark_bull.spark.schedule.commit import commit_schedules
from spark_bull.spark.schedule.plan import SchedulePlan, WrittenSchedules, plan_schedules
from spark_bull.spark.schedule.task import stage_task
from spark_bull.spark.staging import attempt
from spark_bull.spark.staging.identity import identity_of
from spark_bull.spark.staging.messages import Written


@dataclass(frozen=True)
class _Task:
    """The context of an attempt of a task."""

    number: int
    attempt: int = 0

    def get(self) -> _Task:
        return self

    def partitionId(self) -> int:
        return self.number

    def taskAttemptId(self) -> int:
        return self.attempt


@dataclass
class Sink:
    """A write, by default a batch; `identity`: that of a micro-batch."""

    options: dict[str, str]
    schema: StructType
    identity: Identity | None = None
    plan: WritePlan = field(init=False)
    messages: list[Written] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.plan = plan_write(self.options, self.schema)
        self.identity = self.identity or identity_of(self.plan.options)

    def task(self, rows: Sequence[dict[str, Any]]) -> None:
        """Runs the next task of the write."""
        batch = pa.RecordBatch.from_pylist(list(rows), schema=to_arrow_schema(self.schema, timezone="UTC"))
        with patch.object(attempt, "TaskContext", _Task(len(self.messages))):
            self.messages.append(write_task(self.plan, iter([batch]), self.identity))

    def commit(self) -> None:
        commit_write(self.plan, list(self.messages), self.identity)

    def abort(self) -> None:
        abort_write(self.plan, list(self.messages), self.identity)


@dataclass
class ScheduleSink:
    """The same with mode=schedule."""

    options: dict[str, str]
    schema: StructType
    identity: Identity | None = None
    plan: SchedulePlan = field(init=False)
    messages: list[WrittenSchedules] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.plan = plan_schedules(self.options, self.schema)
        self.identity = self.identity or identity_of(self.plan.options)

    def task(self, rows: Sequence[dict[str, Any]]) -> None:
        """Runs the next task of the write."""
        self.messages.append(self.attempt(rows))

    def attempt(self, rows: Sequence[dict[str, Any]], number: int = 0) -> WrittenSchedules:
        """Runs an attempt of the next task; returns its message."""
        batch = pa.RecordBatch.from_pylist(list(rows), schema=to_arrow_schema(self.schema, timezone="UTC"))
        with patch.object(attempt, "TaskContext", _Task(len(self.messages), number)):
            return stage_task(self.plan, iter([batch]), self.identity)

    def commit(self) -> None:
        commit_schedules(self.plan, list(self.messages), self.identity)
