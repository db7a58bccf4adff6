"""The sink of mode=schedule: rows create or change job schedulers, exactly once; its tasks, and its commit on the
driver.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pyspark.sql.types import IntegralType, StringType, StructType, TimestampType

from spark_bull.core.dialects.base import Dialect, Repeated
from spark_bull.core.errors import OptionError
from spark_bull.core.options.parse import parse_options
from spark_bull.core.options.table import ScheduleOptions
from spark_bull.core.queue.dispatch.write_records import SCHEDULERS, Fields, Identity, QueuePlan
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.schedule.schedulers import (
    SCHEDULE_SIZE,
    SchedulerEncoder,
    encoder_of,
    packed_schedulers,
    warn_of_frequent,
)
from spark_bull.core.store.connection import Connection
from spark_bull.spark.platform.lazy_arrow import pa
from spark_bull.spark.staging.columns import (
    JSON,
    JSON_OBJECT,
    QUEUE,
    TEXT,
    ColumnRule,
    check_json_types,
    column,
    column_indexes,
    column_values,
    errors_of_row,
)
from spark_bull.spark.staging.commit import commit_staged, discard_stages, reporting
from spark_bull.spark.staging.plan import CommitMessage, StagedPlan, TaskPart
from spark_bull.spark.staging.sink import Attempt, Outbox, Sink, refuse_overwrite, run_task

log = logging.getLogger("spark_bull")


_TIME: Final = column("TIMESTAMP, or an integer (ms since 1970)", TimestampType, IntegralType)
_INTERVAL: Final = column("an integer (ms), or STRING holding a duration such as PT15M", IntegralType, StringType)
_COLUMNS: Final[Mapping[str, ColumnRule]] = {
    "id": TEXT,
    QUEUE: TEXT,
    "every": _INTERVAL,
    "pattern": TEXT,
    "tz": TEXT,
    "name": TEXT,
    "data": JSON,
    "limit": column("an integer", IntegralType),
    "offset": _INTERVAL,
    "startDate": _TIME,
    "endDate": _TIME,
    "opts": JSON_OBJECT,
}
_JSON: Final = ("data", "opts")


@dataclass(frozen=True)
class ScheduleRows:
    """Indexes of the columns."""

    columns: Mapping[str, int]

    def rows(self, batch: pa.RecordBatch, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """The rows of a batch by the names of the columns. numbers: row numbers, for errors."""
        columns = {
            name: column_values(batch, index, name, numbers, is_json=name in _JSON)
            for name, index in self.columns.items()
        }
        return [{name: values[position] for name, values in columns.items()} for position in range(batch.num_rows)]


def plan_rows(schema: StructType, options: ScheduleOptions) -> ScheduleRows:
    """Checks the columns of a DataFrame. Raises OptionError."""
    columns = column_indexes(schema, _COLUMNS, " with mode=schedule: drop it, or move it into `data`")
    check_json_types(schema, [columns[name] for name in _JSON if name in columns])
    if "id" not in columns:
        raise OptionError("expected a column `id` with mode=schedule, got none: it names the job scheduler")
    if "every" not in columns and "pattern" not in columns:
        raise OptionError("expected a column `every` (ms) or `pattern` (cron) with mode=schedule, got neither")
    if options.queue is not None:
        columns.pop(QUEUE, None)
    elif QUEUE not in columns:
        raise OptionError("expected an option `queue`, or a column `queue`, got neither")
    return ScheduleRows(columns)


@dataclass(frozen=True, kw_only=True)
class SchedulePlan(StagedPlan[ScheduleRows]):
    options: ScheduleOptions

    def fields(self, handle: QueueHandle, parts: Sequence[TaskPart]) -> Fields:
        return SCHEDULERS.fields()

    def check_dialect(self, dialect: Dialect) -> None:
        dialect.require("schedulers")


def commit_schedulers(plan: SchedulePlan, written: Sequence[CommitMessage]) -> None:
    """Registers the staged job schedulers, then creates or changes them, partition by partition.

    Raises OptionError if two rows have the same id; then nothing was changed.
    """
    parts = [part for message in written for part in message.parts]
    _check_ids(parts)

    def warn(plans: Sequence[QueuePlan]) -> None:
        for keys in (queue_plan.handle.keys for queue_plan in plans):
            frequent = [one for part in parts if part.queue == keys.queue for one in part.frequent]
            if frequent:
                warn_of_frequent(keys, frequent)

    commit_staged(plan, written, _report, "the job schedulers were written", after=warn)


def twice(scheduler_id: str, queue: str, where: str) -> OptionError:
    """The error for a job scheduler that a write has twice."""
    return OptionError(
        f"expected each `id` once, got {scheduler_id!r} of queue {queue} twice ({where}): keep one of the rows, as "
        "their order is not defined"
    )


def _check_ids(parts: Sequence[TaskPart]) -> None:
    seen: dict[str, set[str]] = defaultdict(set)
    for part in parts:
        for scheduler_id in seen[part.queue].intersection(part.schedulers):
            raise twice(scheduler_id, part.queue, "in two partitions")
        seen[part.queue].update(part.schedulers)


_report: Final = reporting(
    "%(added)d job schedulers of queue %(queue)s created or changed",
    rejected="%(rejected)d job schedulers of queue %(queue)s were not changed, as a job with the id of their next one "
    "exists. Remove these jobs, then write the job schedulers again",
)


#: Maximum payload of a chunk, bytes; a larger job scheduler is alone in one.
_CHUNK_BYTES: Final = 1 << 20


@dataclass
class _Stage:
    """What a task stages for one queue. was_committed: the queue has these job schedulers, nothing is staged."""

    encoder: SchedulerEncoder
    part: TaskPart
    outbox: Outbox
    size: int
    was_committed: bool
    ids: dict[str, int] = field(default_factory=dict)
    frequent: list[str] = field(default_factory=list)
    gathered: list[Repeated] = field(default_factory=list)
    gathered_bytes: int = 0

    def add(self, scheduler: Repeated) -> None:
        length = len(scheduler["data"]) + len(scheduler["opts"])
        if self.gathered and (len(self.gathered) >= self.size or self.gathered_bytes + length > _CHUNK_BYTES):
            self.flush()
        self.gathered.append(scheduler)
        self.gathered_bytes += length

    def flush(self) -> None:
        if self.gathered:
            self.outbox.add(self.part, len(self.gathered), packed_schedulers(self.gathered))
            self.gathered, self.gathered_bytes = [], 0

    def finish(self) -> TaskPart:
        self.flush()
        return replace(self.part, schedulers=tuple(self.ids), frequent=tuple(self.frequent))


def stage_schedulers(plan: SchedulePlan, batches: Iterator[pa.RecordBatch]) -> CommitMessage:
    """Stages the rows of a task attempt."""
    return run_task(plan, batches, _Task)


@dataclass
class _Task:
    """Checks and stages the rows of a task attempt, queue by queue."""

    plan: SchedulePlan
    attempt: Attempt
    identity: Identity | None
    outbox: Outbox
    stages: dict[str, _Stage] = field(default_factory=dict)

    def take(self, batch: pa.RecordBatch, numbers: range) -> None:
        # The first times of patterns count from here.
        now = Connection(self.plan.options.redis).now_ms()
        for number, row in zip(numbers, self.plan.rows.rows(batch, numbers), strict=True):
            queue = row.pop(QUEUE, None) or self.plan.options.queue
            if not queue:
                raise OptionError(f"row {number}: expected `queue` to name a queue, got {queue!r}")
            with errors_of_row(number):
                self._take(self._stage(queue), row, number, now)

    def _take(self, stage: _Stage, row: dict[str, object], number: int, now: int) -> None:
        if stage.was_committed:
            return
        scheduler, repeated = stage.encoder.encode(row, now)
        if scheduler.id in stage.ids:
            raise twice(scheduler.id, stage.part.queue, f"also in row {stage.ids[scheduler.id]}")
        stage.ids[scheduler.id] = number
        if scheduler.is_frequent:
            stage.frequent.append(scheduler.id)
        stage.add(repeated)

    def _stage(self, queue: str) -> _Stage:
        if queue not in self.stages:
            handle, options = self.plan.handle_of(queue), self.plan.options
            self.stages[queue] = _Stage(
                encoder_of(handle),
                self.attempt.part_of(handle),
                self.outbox,
                min(options.chunk_size, SCHEDULE_SIZE),
                self.plan.has_written(handle, self.identity),
            )
        return self.stages[queue]

    def finish(self) -> tuple[TaskPart, ...]:
        return tuple(part for part in (stage.finish() for stage in self.stages.values()) if part.chunks)


def schedule_sink(
    raw: Mapping[str, str], schema: StructType, overwrite: bool, *, is_stream: bool
) -> Sink[SchedulePlan, CommitMessage]:
    """Plans a write with mode=schedule. Raises the errors of `StagedPlan.planned`."""
    if overwrite:
        raise refuse_overwrite("mode=schedule adds and changes job schedulers", is_stream=is_stream)
    options = parse_options(raw, ScheduleOptions)
    plan = SchedulePlan.planned(options, plan_rows(schema, options), is_stream=is_stream)
    return Sink(plan, stage_schedulers, commit_schedulers, discard_stages)
