"""A task attempt of a write of schedules: checks its rows and stages them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from spark_bull.dialects.base import Repeated
from spark_bull.errors import OptionError, SparkBullError, restated
from spark_bull.queue.dispatch.writes import Identity, is_written, stage_chunk
from spark_bull.queue.schedule.schedulers import SCHEDULE_SIZE, ScheduleEncoder, encoder_of, packed_schedules
from spark_bull.spark.platform.lazy_arrow import pa
from spark_bull.spark.schedule.plan import SchedulePlan, WrittenSchedules
from spark_bull.spark.staging.attempt import this_attempt
from spark_bull.spark.staging.messages import TaskPart
from spark_bull.spark.staging.queue_rows import QUEUE
from spark_bull.store.connection import Connection
from spark_bull.store.settings import settings_of

#: Maximum payload of a chunk, bytes; a larger schedule is alone in one.
_CHUNK_BYTES: Final = 1 << 20


@dataclass
class _Stage:
    """What a task stages for one queue. was_committed: the queue has these schedules, nothing is staged."""

    encoder: ScheduleEncoder
    written: TaskPart
    ttl_ms: int
    size: int
    was_committed: bool
    ids: dict[str, int] = field(default_factory=dict)
    frequent: list[str] = field(default_factory=list)
    gathered: list[Repeated] = field(default_factory=list)
    gathered_bytes: int = 0

    def add(self, schedule: Repeated) -> None:
        length = len(schedule["data"]) + len(schedule["opts"])
        if self.gathered and (len(self.gathered) >= self.size or self.gathered_bytes + length > _CHUNK_BYTES):
            self.flush()
        self.gathered.append(schedule)
        self.gathered_bytes += length

    def flush(self) -> None:
        if self.gathered:
            packed, written = packed_schedules(self.gathered), self.written
            stage_chunk(self.encoder.handle, written.stage, written.chunks, packed, self.ttl_ms)
            written.chunks += 1
            written.rows += len(self.gathered)
            self.gathered, self.gathered_bytes = [], 0


def stage_task(plan: SchedulePlan, batches: Iterator[pa.RecordBatch], identity: Identity | None) -> WrittenSchedules:
    """Stages the rows of a task attempt."""
    attempt = this_attempt(plan.write_id)
    connection = Connection(settings_of(plan.options))
    started_on = connection.now_ms()
    if plan.was_committed(identity):
        for _ in batches:
            pass
        return WrittenSchedules(plan.write_id, (), started_on, identity)
    task = _Task(plan, attempt.name, identity)
    try:
        for batch in batches:
            task.take(batch, connection.now_ms())
        return task.finish(started_on)
    except SparkBullError as error:
        raise restated(error, f"partition {attempt.partition}, {error}") from error


@dataclass
class _Task:
    """Checks and stages the rows of a task attempt, queue by queue."""

    plan: SchedulePlan
    attempt: str
    identity: Identity | None
    seen: int = 0
    stages: dict[str, _Stage] = field(default_factory=dict)

    def take(self, batch: pa.RecordBatch, now: int) -> None:
        """now: time of Redis, ms, from which the first times of patterns count."""
        numbers = range(self.seen, self.seen + batch.num_rows)
        for number, row in zip(numbers, self.plan.rows.rows(batch, numbers), strict=True):
            queue = row.pop(QUEUE, None) or self.plan.options[QUEUE]
            if not queue:
                raise OptionError(f"row {number}: expected `queue` to name a queue, got {queue!r}")
            try:
                self._take(self._stage(queue), row, number, now)
            except SparkBullError as error:
                raise restated(error, f"row {number}: {error}") from error
        self.seen += batch.num_rows

    def _take(self, stage: _Stage, row: dict[str, object], number: int, now: int) -> None:
        if stage.was_committed:
            return
        schedule, repeated = stage.encoder.encode(row, now)
        if schedule.id in stage.ids:
            raise twice(schedule.id, stage.encoder.handle.keys.queue, f"also in row {stage.ids[schedule.id]}")
        stage.ids[schedule.id] = number
        if schedule.is_frequent:
            stage.frequent.append(schedule.id)
        stage.add(repeated)

    def _stage(self, queue: str) -> _Stage:
        if queue not in self.stages:
            handle, options = self.plan.handle_of(queue), self.plan.options
            self.stages[queue] = _Stage(
                encoder_of(handle, self.plan.defaults),
                TaskPart(queue, handle.dialect.name, handle.keys.stage(self.attempt)),
                options["stageTtlMs"],
                min(options["chunkSize"], SCHEDULE_SIZE),
                self.identity is not None and is_written(handle, self.identity),
            )
        return self.stages[queue]

    def finish(self, started_on: int) -> WrittenSchedules:
        for stage in self.stages.values():
            stage.flush()
        parts = tuple(stage.written for stage in self.stages.values() if stage.written.chunks)
        return WrittenSchedules(
            self.plan.write_id,
            parts,
            started_on,
            self.identity,
            {queue: tuple(stage.ids) for queue, stage in self.stages.items()},
            {queue: tuple(stage.frequent) for queue, stage in self.stages.items() if stage.frequent},
        )


def twice(schedule_id: str, queue: str, where: str) -> OptionError:
    """The error for a schedule that a write has twice."""
    return OptionError(
        f"expected each `id` once, got {schedule_id!r} of queue {queue} twice ({where}): keep one of the rows, as "
        "their order is not defined"
    )
