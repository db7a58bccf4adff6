"""The sink without a Spark session: its tasks and its commit are called as Spark does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from pyspark.sql.types import StructType

from spark_bull.queue.dispatch.writes import Identity
from spark_bull.spark.dispatch.sink import write_steps
from spark_bull.spark.manage.sink import manage_steps
from spark_bull.spark.platform.arrow import to_arrow_schema
from spark_bull.spark.schedule.sink import schedule_steps
from spark_bull.spark.staging import attempt
from spark_bull.spark.staging.messages import Written
from spark_bull.spark.staging.sink import BatchSink


@dataclass(frozen=True)
class _Task:
    """The context of an attempt of a task."""

    number: int
    attempt: int = 0
    batch: Identity | None = None

    def get(self) -> _Task:
        return self

    def partitionId(self) -> int:
        return self.number

    def taskAttemptId(self) -> int:
        return self.attempt

    def getLocalProperty(self, name: str) -> str | None:
        if self.batch is None:
            return None
        return {"sql.streaming.queryId": self.batch.app_id, "streaming.sql.batchId": str(self.batch.version)}[name]


@dataclass
class Sink:
    """A write, by default a batch; `batch`: the identity of a micro-batch."""

    options: dict[str, str]
    schema: StructType
    batch: Identity | None = None
    messages: list[Written] = field(default_factory=list)
    attempts: Iterator[int] = field(default_factory=count)
    make_steps = staticmethod(write_steps)

    def __post_init__(self) -> None:
        steps: Any = self.make_steps(self.options, self.schema, False, is_stream=self.batch is not None)
        self.steps = steps
        self.plan = steps.plan

    def task(self, rows: Sequence[dict[str, Any]]) -> None:
        """Runs the next task of the write."""
        self.messages.append(self.attempt(rows))

    def attempt(self, rows: Sequence[dict[str, Any]]) -> Written:
        """Runs an attempt of the next task; Spark does not get its message."""
        batch = pa.RecordBatch.from_pylist(list(rows), schema=to_arrow_schema(self.schema))
        with patch.object(attempt, "TaskContext", _Task(len(self.messages), next(self.attempts), self.batch)):
            message: Written = BatchSink(self.steps).write(iter([batch]))
            return message

    def commit(self) -> None:
        BatchSink(self.steps).commit([*self.messages])

    def abort(self) -> None:
        BatchSink(self.steps).abort([*self.messages])


class ScheduleSink(Sink):
    make_steps = staticmethod(schedule_steps)


class ManageSink(Sink):
    make_steps = staticmethod(manage_steps)
