"""Parts of the data source without a Spark session: sinks, and a query that claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from spark_bull.core.dialects.base import json_text
from spark_bull.core.errors import UnrecoverableError
from spark_bull.core.model.outcomes import ClaimedJob
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.dispatch.write_records import Identity
from spark_bull.run.job.running_job import RunningJob
from spark_bull.spark.dispatch.sink import write_sink
from spark_bull.spark.manage import manage_sink
from spark_bull.spark.platform.arrow import to_arrow_schema
from spark_bull.spark.schedule import schedule_sink
from spark_bull.spark.staging import sink as staging_task
from spark_bull.spark.staging.plan import CommitMessage
from spark_bull.spark.work.claim_stream import claim_reader
from spark_bull.spark.work.frame_runner import ERROR_SCHEMA, error_columns
from spark_bull.spark.work.settle.plan import plan_settle
from spark_bull.spark.work.settle.task import settle_task
from tests.support.wait import Background
from tests.support.work_bench import options_of
from tests.support.worker import behave


@dataclass
class Sink:
    """A write, by default a batch that appends; `batch`: the identity of a micro-batch."""

    options: dict[str, str]
    schema: StructType
    batch: Identity | None = None
    messages: list[CommitMessage] = field(default_factory=list)
    attempts: Iterator[int] = field(default_factory=count)
    overwrite: bool = False
    make_sink = staticmethod(write_sink)

    def __post_init__(self) -> None:
        self.sink: Any = self.make_sink(self.options, self.schema, self.overwrite, is_stream=self.batch is not None)
        self.plan = self.sink.plan

    def task(self, rows: Sequence[dict[str, Any]]) -> None:
        self.messages.append(self.attempt(rows))

    def attempt(self, rows: Sequence[dict[str, Any]]) -> CommitMessage:
        """Runs an attempt of the next task; Spark does not get its message."""
        batch = pa.RecordBatch.from_pylist(list(rows), schema=to_arrow_schema(self.schema))
        number, attempt, properties = len(self.messages), next(self.attempts), {}
        if self.batch is not None:
            properties = {"sql.streaming.queryId": self.batch.app_id, "streaming.sql.batchId": str(self.batch.version)}
        context = SimpleNamespace(
            partitionId=lambda: number, taskAttemptId=lambda: attempt, getLocalProperty=properties.get
        )
        with patch.object(staging_task, "TaskContext", SimpleNamespace(get=lambda: context)):
            message: CommitMessage = self.sink.write(iter([batch]))
            return message

    def commit(self) -> None:
        self.sink.commit([*self.messages])

    def abort(self) -> None:
        self.sink.abort([*self.messages])


class ScheduleSink(Sink):
    make_sink = staticmethod(schedule_sink)  # type: ignore[assignment]


class ManageSink(Sink):
    make_sink = staticmethod(manage_sink)  # type: ignore[assignment]


Row = dict[str, Any]
_SCHEMA = StructType([StructField(name, StringType()) for name in ("id", "token", "returnvalue")] + [*ERROR_SCHEMA])
_ARROW = to_arrow_schema(_SCHEMA)
#: How long an empty queue is left alone. Seconds.
_PAUSE_S = 0.05


class ClaimingQuery:
    """Claims the jobs of a queue, batch by batch. `options`: further ones of the claim."""

    def __init__(self, queue: BullQueue, **options: Any) -> None:
        self._options = options_of(queue)
        self._more = {name: str(value) for name, value in options.items()}
        self._plan = plan_settle(self._options, _SCHEMA)
        self.reader = claim_reader(self._options | self._more)
        #: Offsets of the last batch.
        self.start = self.end = self.reader.initialOffset()

    def batch(self) -> list[Row]:
        self.reader.commit(self.end)
        self.start, self.end = self.end, self.reader.latestOffset(self.end, self.reader.getDefaultReadLimit())
        return self._rows()

    def restart(self) -> list[Row]:
        """Restarts the query from its checkpoint, which repeats the last batch; returns its rows."""
        self.close()
        self.reader = claim_reader(self._options | self._more)
        return self._rows()

    def close(self) -> None:
        """Ends what in Spark ends with a process: the thread that extends locks, and a call that claims ahead."""
        if (claimer := self.reader._claimer) is not None:
            claimer._keeper.__exit__()
            claimer.end()

    def _rows(self) -> list[Row]:
        parts = self.reader.partitions(self.start, self.end)
        return [row for part in parts for batch in self.reader.read(part) for row in batch.to_pylist()]

    def settle(self, *rows: Row) -> Counter[str]:
        """Settles rows in one task; returns the number of jobs by what became of them."""
        counts = settle_task(self._plan, iter([pa.RecordBatch.from_pylist(list(rows), _ARROW)])).counts
        return +Counter({str(name): number for name, number in counts.items()})


class OurStream(Background):
    """Processes a queue until the block is left."""

    def __init__(self, queue: BullQueue) -> None:
        super().__init__()
        self._handle = queue.handle
        self._query = ClaimingQuery(queue, maxJobsPerTrigger=10)

    def work(self) -> None:
        while not self.stopping.is_set():
            if rows := self._query.batch():
                self._query.settle(*({**row, **self._outcome(row)} for row in rows))
            else:
                self.stopping.wait(_PAUSE_S)
        self._query.close()

    def _outcome(self, row: Row) -> Row:
        claimed = ClaimedJob(row["id"], data=row["data"], opts=row["opts"], attempts_made=row["attemptsMade"])
        try:
            if row["deferredFailure"] is not None:
                raise UnrecoverableError(row["deferredFailure"])
            return {"returnvalue": json_text("returnvalue", behave(RunningJob(claimed, self._handle)))}
        except Exception as error:
            return error_columns(error)
