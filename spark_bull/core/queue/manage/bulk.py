"""Changes all jobs of a state that a condition selects: a write with mode=manage, whose rows are found by this process.

The jobs are found first, so that changes do not shift what is still to be read. The write is prepared meanwhile: a
program that dies then has changed nothing. Once the write is registered, any process can finish it, or abort it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final
from uuid import uuid4

from spark_bull.core.clock import monotonic_s
from spark_bull.core.dialects.fields import FIELDS
from spark_bull.core.errors import SparkBullError, StagedDataLost
from spark_bull.core.model.queues import WriteRecord
from spark_bull.core.model.read_jobs import Change
from spark_bull.core.queue.dispatch.registration import VALID_MS, confirm_rows, prepare_rows
from spark_bull.core.queue.dispatch.roll_forward import advance_all, roll_forward
from spark_bull.core.queue.dispatch.write_records import (
    CHANGES,
    QueuePlan,
    StagedChunk,
    StagedPart,
    read_record,
    stage_chunks,
)
from spark_bull.core.queue.handle.handle import CHUNK_SIZE, RECORD_TTL_MS, QueueHandle
from spark_bull.core.queue.jobs.portions import JobFilter
from spark_bull.core.queue.jobs.read import read_jobs
from spark_bull.core.queue.manage.manage import ChangeChunk, change_chunks, rows_of

log = logging.getLogger("spark_bull")

#: Number of jobs from which on those that were found are staged, and the longest time until that, s.
PORTION: Final = 5_000
LOOK_S: Final = 1.0
#: Maximum bytes of a staged chunk.
_STAGED_BYTES: Final = 1 << 20
ALL: Final = JobFilter()
#: In place of an id, in the error for a change that is wrong for any job.
_ANY: Final = "*"


def matching_ids(handle: QueueHandle, state: str, wanted: JobFilter = ALL) -> Iterator[list[str]]:
    """The ids of the jobs of a state that a filter accepts, chunk by chunk, also of chunks in which none is."""
    for chunk in read_jobs(handle, [state], () if wanted.is_empty else FIELDS):
        if wanted.is_empty:
            yield [job_id.decode("utf-8", "replace") for job_id in chunk.ids]
        else:
            yield [job.id for job in chunk.jobs(handle.keys.queue) if wanted.accepts(job)]


class BulkChange:
    """The same change of many jobs. `found`, `done`: numbers of jobs so far; another thread may read them.

    change: the change; its id does not count, and with any action, a job is only changed while it is in its `state`.
    Raises OptionError or DialectError for a wrong one.
    """

    def __init__(self, handle: QueueHandle, change: Change) -> None:
        self.write_id = uuid4().hex
        self.found = self.done = 0
        self._handle = handle
        self._change = change
        self._parts: list[StagedPart] = []
        self._plan = QueuePlan(handle, self._parts, CHANGES.fields([change.to] if change.to else ()))
        self._chunks([_ANY])
        prepare_rows(self.write_id, self._plan, 0)

    def run(self, found: Iterable[Sequence[str]]) -> WriteRecord:
        """Finishes earlier writes of the queue, then changes the jobs with the ids that are found, portion by portion.

        Returns the record; its state is `aborted` if another thread or process has aborted the change, or if an error
        ends the search. Raises StagedDataLost, also if the jobs are not found within an hour. That the chunks of an
        earlier write are gone is logged.
        """
        try:
            advance_all(self._handle, _warn)
            if self._find(found):
                confirm_rows(self.write_id, self._plan)
        except BaseException:
            with suppress(SparkBullError):
                abort_change(self._handle, self.write_id)
            raise
        return roll_forward(self._handle, self.write_id, self._note)

    def _find(self, found: Iterable[Sequence[str]]) -> bool:
        """Stages the changes. Returns False if the write was aborted meanwhile."""
        waiting: list[str] = []
        look_at = monotonic_s() + LOOK_S
        for ids in found:
            waiting += ids
            if len(waiting) >= PORTION or monotonic_s() >= look_at:
                if not self._stage(waiting):
                    return False
                waiting, look_at = [], monotonic_s() + LOOK_S
        return self._stage(waiting)

    def _stage(self, ids: Sequence[str]) -> bool:
        first = len(self._parts)
        if ids:
            stage, chunks = self._handle.keys.stage(f"{self.write_id}.{first}"), self._chunks(ids)
            staged = [StagedChunk(stage, number, chunk.packed) for number, chunk in enumerate(chunks)]
            stage_chunks(self._handle.connection, staged, VALID_MS)
            self._parts.append(StagedPart(stage, len(chunks), len(ids)))
            self.found += len(ids)
        return prepare_rows(self.write_id, self._plan, first)

    def _chunks(self, ids: Sequence[str]) -> list[ChangeChunk]:
        rows = rows_of([replace(self._change, id=job_id) for job_id in ids])
        numbers = range(self.found, self.found + len(ids))
        # These can take a job out of its state: with the last of its children, or in one of several scripts.
        waits = self._change.action == "remove" and self._change.state == "waiting-children"
        found_in = None if waits or self._change.action == "discard-children" else self._change.state
        return list(change_chunks(self._handle, rows, numbers, CHUNK_SIZE, _STAGED_BYTES, found_in))

    def _note(self, done: int, total: int) -> None:
        self.done = done


def _warn(error: StagedDataLost) -> None:
    log.warning("changing jobs without the lost rows of an older write: %s", error)


def abort_change(handle: QueueHandle, write_id: str) -> WriteRecord | None:
    """Aborts a write that changes jobs, of this or any other process: what it has changed stays changed.

    Returns its record; None if there is none. A write that has ended, or adds jobs, stays as it is.
    """
    keys = handle.keys
    names = {
        "write": keys.write(write_id),
        "manifest": keys.manifest(write_id),
        "open_writes": keys["open_writes"],
        "finished_writes": keys["finished_writes"],
    }
    handle.connection.script("write/abort", names, {"write_id": write_id, "record_ttl_ms": RECORD_TTL_MS})
    return read_record(handle, write_id)


def end_of(record: WriteRecord) -> str:
    """How far a write that changes jobs has come."""
    return (
        f"write {record.id} to {record.queue} was {record.state} after {record.done:,} of {record.jobs:,} jobs: "
        f"{record.changed:,} of them were changed"
    )
