"""The sink without a Spark session: its tasks and its commit are called as Spark does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, ClassVar, Generic, TypeVar
from unittest.mock import patch

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark_bull.queue.dispatch.writes import Identity
from spark_bull.spark.dispatch.commit import abort_write, commit_write
from spark_bull.spark.dispatch.plan import plan_write
from spark_bull.spark.dispatch.task import write_task
from spark_bull.spark.dispatch.write_plan import WritePlan
from spark_bull.spark.manage.commit import commit_changes
from spark_bull.spark.manage.plan import ManagePlan, plan_manage
from spark_bull.spark.manage.task import stage_task as stage_changes
from spark_bull.spark.schedule.commit import commit_schedules
from spark_bull.spark.schedule.plan import SchedulePlan, WrittenSchedules, plan_schedules
from spark_bull.spark.schedule.task import stage_task as stage_schedules
from spark_bull.spark.staging import attempt
from spark_bull.spark.staging.identity import identity_of
from spark_bull.spark.staging.messages import Written
from spark_bull.spark.staging.plan import StagedPlan
from spark_bull.spark.staging.sink import Steps

P = TypeVar("P", bound=StagedPlan)
W = TypeVar("W", bound=Written)


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
    attempts: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self.plan = plan_write(self.options, self.schema)
        self.identity = self.identity or identity_of(self.plan.options)

    def task(self, rows: Sequence[dict[str, Any]]) -> None:
        """Runs the next task of the write."""
        self.messages.append(self.attempt(rows))

    def attempt(self, rows: Sequence[dict[str, Any]]) -> Written:
        """Runs an attempt of the next task; Spark does not get its message."""
        batch = pa.RecordBatch.from_pylist(list(rows), schema=to_arrow_schema(self.schema, timezone="UTC"))
        with patch.object(attempt, "TaskContext", _Task(len(self.messages), next(self.attempts))):
            return write_task(self.plan, iter([batch]), self.identity)

    def commit(self) -> None:
        commit_write(self.plan, list(self.messages), self.identity)

    def abort(self) -> None:
        abort_write(self.plan, list(self.messages), self.identity)


@dataclass
class _StagedSink(Generic[P, W]):
    """The same with another mode."""

    options: dict[str, str]
    schema: StructType
    identity: Identity | None = None
    plan: P = field(init=False)
    messages: list[W] = field(default_factory=list)
    make_plan: ClassVar[Callable[[dict[str, str], StructType], Any]]
    steps: ClassVar[Steps[Any, Any]]

    def __post_init__(self) -> None:
        self.plan = type(self).make_plan(self.options, self.schema)
        self.identity = self.identity or identity_of(self.plan.options)

    def task(self, rows: Sequence[dict[str, Any]]) -> None:
        """Runs the next task of the write."""
        self.messages.append(self.attempt(rows))

    def attempt(self, rows: Sequence[dict[str, Any]], number: int = 0) -> W:
        """Runs an attempt of the next task; returns its message."""
        batch = pa.RecordBatch.from_pylist(list(rows), schema=to_arrow_schema(self.schema, timezone="UTC"))
        with patch.object(attempt, "TaskContext", _Task(len(self.messages), number)):
            message: W = self.steps.stage(self.plan, iter([batch]), self.identity)
            return message

    def commit(self) -> None:
        self.steps.commit(self.plan, list(self.messages), self.identity)


class ScheduleSink(_StagedSink[SchedulePlan, WrittenSchedules]):
    make_plan = staticmethod(plan_schedules)
    steps = Steps(stage_schedules, commit_schedules)


class ManageSink(_StagedSink[ManagePlan, Written]):
    make_plan = staticmethod(plan_manage)
    steps = Steps(stage_changes, commit_changes)
