"""The sink of mode=manage: rows change existing jobs, exactly once; its tasks, and its commit on the driver.

A Parquet file in the directory `resultPath` has what became of each change.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql.types import BooleanType, IntegralType, StringType, StructType

from spark_bull.core.dialects.base import Dialect
from spark_bull.core.dialects.changes import ACTIONS, action_of
from spark_bull.core.errors import OptionError, SparkBullError, restated
from spark_bull.core.model.queues import WriteRecord
from spark_bull.core.model.read_jobs import Changed
from spark_bull.core.options.parse import parse_options
from spark_bull.core.options.redis_settings import masked
from spark_bull.core.options.table import ManageOptions
from spark_bull.core.queue.dispatch.write_records import CHANGES, Fields, Identity, QueuePlan, is_written, read_outcomes
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.manage.bulk import end_of
from spark_bull.core.queue.manage.manage import change_chunks, check_managed, error_of
from spark_bull.spark.schemas import SCHEMAS
from spark_bull.spark.staging.columns import (
    JSON,
    MS,
    QUEUE,
    TEXT,
    ColumnRule,
    by_queue,
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


_COLUMNS: Final[Mapping[str, ColumnRule]] = {
    "id": column("STRING, or an integer", StringType, IntegralType),
    QUEUE: TEXT,
    "action": TEXT,
    "data": JSON,
    "delay": MS,
    "priority": column("an integer, or STRING with a name of one", IntegralType, StringType),
    "lifo": column("BOOLEAN", BooleanType),
    "resetAttempts": column("BOOLEAN", BooleanType),
    "state": TEXT,
    "failedReason": TEXT,
    "returnvalue": JSON,
    "to": TEXT,
}
#: Columns of jobs as they are read, which are ignored.
_IGNORED: Final = frozenset(field.name.lower() for field in SCHEMAS["jobs"])
_PAYLOADS: Final = ("data", "returnvalue")


@dataclass(frozen=True)
class ChangeRows:
    """Indexes of the columns. action: of rows without one."""

    columns: Mapping[str, int]
    action: str | None

    def rows(self, batch: pa.RecordBatch, numbers: Sequence[int]) -> dict[str, list[Any]]:
        """The values of a batch by column. numbers: row numbers, for errors."""
        rows = {
            name: column_values(batch, index, name, numbers, is_json=name in _PAYLOADS)
            for name, index in self.columns.items()
        }
        given = rows.get("action", [None] * batch.num_rows)
        rows["action"] = [self.action if action is None else action for action in given]
        return rows


def plan_rows(schema: StructType, options: ManageOptions) -> ChangeRows:
    """Checks the columns of a DataFrame. Raises OptionError."""
    columns = column_indexes(schema, _COLUMNS, " with mode=manage: drop it", _IGNORED)
    check_json_types(schema, [columns[name] for name in _PAYLOADS if name in columns])
    if "id" not in columns:
        raise OptionError("expected a column `id` with mode=manage, got none: it names the job that is changed")
    for name in ("action", QUEUE):
        if name not in columns and options.value(name) is None:
            raise OptionError(f"expected an option `{name}`, or a column `{name}`, got neither")
    _check_needs(columns, options.action)
    if options.queue is not None:
        columns.pop(QUEUE, None)
    return ChangeRows(columns, options.action)


def _check_needs(columns: Mapping[str, int], action: str | None) -> None:
    """Raises OptionError if the action of all rows needs a column that is missing."""
    if "action" in columns or action is None or action not in ACTIONS:
        return
    for name in ACTIONS[action].needs:
        if name not in columns:
            raise OptionError(f"expected a column `{name}` for the action {action}, got none")


@dataclass(frozen=True, kw_only=True)
class ManagePlan(StagedPlan[ChangeRows]):
    options: ManageOptions
    adds = False

    def fields(self, handle: QueueHandle, parts: Sequence[TaskPart]) -> Fields:
        moved_to = {queue for part in parts for queue in part.flow_queues}
        keeps = {} if self.options.result_path is None else {"outcomes": 1}
        return {**CHANGES.fields(moved_to), **keeps}

    def check_dialect(self, dialect: Dialect) -> None:
        if self.options.action is not None:
            action_of(dialect, self.options.action)


_SCHEMA: Final = pa.schema([(name, pa.string()) for name in ("queue", "id", "action", "outcome")])
_ROWS: Final = 50_000
_WRITABLE: Final = "a directory that can be written"


def check_path(path: str | None) -> None:
    """Raises OptionError for a directory that can't be created."""
    if path == "":
        raise OptionError("expected `resultPath` to be a directory, got an empty text: leave it out for no file")
    if path is not None:
        system, directory = _located(path)
        try:
            system.create_dir(directory, recursive=True)
        except (OSError, pa.ArrowException) as error:
            raise OptionError(_refusal(path, _WRITABLE, error)) from None


def write_outcomes(path: str, write_id: str, outcomes: Iterable[tuple[str, Changed]]) -> str:
    """Writes the outcomes, each with the name of its queue; returns the path of the file.

    The file is named after the write, so that a repetition replaces it. Raises SparkBullError if it can't be
    written.
    """
    system, directory = _located(path)
    name = f"{directory}/{write_id}.parquet"
    # Spark ignores files that begin with an underscore: it sees the file when it is complete.
    hidden = f"{directory}/_{write_id}.parquet"
    try:
        with system.open_output_stream(hidden) as stream, pq.ParquetWriter(stream, _SCHEMA) as writer:
            for batch in _batches(iter(outcomes)):
                writer.write_batch(batch)
        system.move(hidden, name)
    except (OSError, pa.ArrowException) as error:
        raise SparkBullError(_refusal(path, _WRITABLE, error)) from None
    return name


def _batches(outcomes: Iterator[tuple[str, Changed]]) -> Iterator[pa.RecordBatch]:
    while part := list(islice(outcomes, _ROWS)):
        columns = zip(*((queue, one.id, one.action, one.outcome) for queue, one in part), strict=True)
        yield pa.RecordBatch.from_arrays([pa.array(column, pa.string()) for column in columns], schema=_SCHEMA)


def _located(path: str) -> tuple[fs.FileSystem, str]:
    """The file system of a path or URI, and the path in it. Raises OptionError."""
    try:
        is_uri = "://" in path or path.startswith("file:")
        located: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(path if is_uri else os.path.abspath(path))
        return located
    except (ValueError, OSError, pa.ArrowException) as error:
        raise OptionError(_refusal(path, "a path or URI that pyarrow can open", error)) from None


def _refusal(path: str, wanted: str, error: Exception) -> str:
    """The message shows neither the keys that a URI can contain, nor all places where pyarrow has looked for files."""
    shown = masked(path.partition("?")[0]) if "://" in path else path
    why = str(error).partition("\n")[0].replace(path, shown)
    return f"expected `resultPath` to be {wanted}, got: {shown!r} ({why})"


def commit_changes(plan: ManagePlan, written: Sequence[CommitMessage]) -> None:
    """Registers the staged changes, then makes them, partition by partition.

    With `onMismatch=fail`, raises the error of the first job that can't be changed, before any is changed. Raises
    SparkBullError if another process has aborted the write.
    """
    fails, path = plan.options.on_mismatch == "fail", plan.options.result_path
    records: list[WriteRecord] = []

    def check(plans: Sequence[QueuePlan]) -> None:
        if fails:
            _check(plans, plan.identity_in(written))

    def note(plans: Sequence[QueuePlan]) -> None:
        if path is not None:
            _write_outcomes(path, plan.write_id_in(written), plans)

    def report(record: WriteRecord) -> None:
        records.append(record)
        _report(record)

    commit_staged(plan, written, report, "the jobs were changed", before=check, after=note)
    aborted = [end_of(record) for record in records if record.state == "aborted"]
    if aborted:
        raise SparkBullError(f"{'; '.join(aborted)}, and stay changed; a new write changes the others")
    skipped = sum(record.jobs - record.changed for record in records)
    if fails and skipped:
        raise SparkBullError(
            f"{skipped:,} of {sum(record.jobs for record in records):,} jobs were not changed, as others have changed "
            "them since they were checked (`onMismatch=fail`); all others were: don't run this write again, see "
            "view=writes"
        )


def _check(plans: Sequence[QueuePlan], identity: Identity | None) -> None:
    """Raises the error of the first job that can't be changed."""
    for queue_plan in plans:
        handle = queue_plan.handle
        if identity is not None and is_written(handle, identity):
            continue
        for part in queue_plan.parts:
            for number in range(part.chunks):
                found = check_managed(handle, part.stage, number)
                if found is not None:
                    error = error_of(handle, Changed(*found))
                    raise SparkBullError(
                        f"no job was changed (`onMismatch=fail`): the action {found[1]} is not possible: {error}"
                    ) from error


_report: Final = reporting(
    "%(changed)d of %(jobs)d jobs of queue %(queue)s changed, %(missing)d missing, %(locked)d locked, "
    "%(wrong_state)d in a wrong state"
)


def _write_outcomes(path: str, write_id: str, plans: Sequence[QueuePlan]) -> None:
    def outcomes() -> Iterator[tuple[str, Changed]]:
        for queue_plan in plans:
            for changed in read_outcomes(queue_plan.handle, write_id):
                yield queue_plan.handle.keys.queue, changed

    try:
        name = write_outcomes(path, write_id, outcomes())
    except SparkBullError as error:
        raise restated(
            error,
            "the jobs were changed, but the file with the outcomes was not written: don't run this write again; "
            f'BullQueue.outcomes("{write_id}") of each queue reads them for 30 days. Cause: {error}',
        ) from error
    log.info("write %s: outcomes are in %s", write_id, name)
    for queue_plan in plans:
        queue_plan.handle.connection.call("UNLINK", queue_plan.handle.keys.outcomes(write_id))


def stage_changes(plan: ManagePlan, batches: Iterator[pa.RecordBatch]) -> CommitMessage:
    """Stages the rows of a task attempt."""
    return run_task(plan, batches, _Task)


@dataclass
class _Task:
    plan: ManagePlan
    attempt: Attempt
    identity: Identity | None
    outbox: Outbox
    stages: dict[str, tuple[QueueHandle, TaskPart]] = field(default_factory=dict)

    def take(self, batch: pa.RecordBatch, numbers: range) -> None:
        if not batch.num_rows:
            return
        options = self.plan.options
        for queue, rows, own in by_queue(self.plan.rows.rows(batch, numbers), options.queue, numbers):
            if queue not in self.stages:
                with errors_of_row(own[0]):
                    opened = self.plan.handle_of(queue)
                self.stages[queue] = opened, self.attempt.part_of(opened)
            handle, part = self.stages[queue]
            for chunk in change_chunks(handle, rows, own, options.chunk_size, options.chunk_bytes):
                self.outbox.add(part, chunk.rows, chunk.packed)
                part.flow_queues.update(chunk.queues)

    def finish(self) -> tuple[TaskPart, ...]:
        # A batch without rows has staged nothing.
        return tuple(part for _, part in self.stages.values() if part.chunks)


def manage_sink(
    raw: Mapping[str, str], schema: StructType, overwrite: bool, *, is_stream: bool
) -> Sink[ManagePlan, CommitMessage]:
    """Plans a write with mode=manage. Raises the errors of `StagedPlan.planned`."""
    if overwrite:
        raise refuse_overwrite("mode=manage changes existing jobs", is_stream=is_stream)
    options = parse_options(raw, ManageOptions)
    rows = plan_rows(schema, options)
    check_path(options.result_path)
    plan = ManagePlan.planned(options, rows, is_stream=is_stream)
    return Sink(plan, stage_changes, commit_changes, discard_stages)
