"""The jobs of one write of Spark, by the ranges of their ids, or by their ids if it keeps them (`keepIds`).

How jobs have ended that do not exist any more is read from the events of BullMQ.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate, compress, islice
from typing import Final, NamedTuple

import msgpack

from spark_bull.core.clock import monotonic_s
from spark_bull.core.dialects.fields import ALWAYS_THERE, Raw
from spark_bull.core.errors import JobFailed, JobMissing, OptionError, ResultsLost, WaitTimeout
from spark_bull.core.model.queues import WriteEnd, WriteRecord
from spark_bull.core.queue.dispatch.write_records import read_record
from spark_bull.core.queue.events.waiting import wait_for_job
from spark_bull.core.queue.handle.handle import CHUNK_SIZE, QueueHandle
from spark_bull.core.queue.handle.job_fields import Columns
from spark_bull.core.queue.handle.walk import WHOLE, Slice
from spark_bull.core.queue.jobs.read import Chunk, hash_fields, read_ids

#: Chunks of ids that one call reads.
_CHUNKS: Final = 20
#: Time between two looks at what is waited for, unless events tell.
PAUSE_S: Final = 1.0

#: Events that one command reads.
_EVENTS: Final = 1_000
#: The events that end a job, with the field of its value.
_VALUES: Final = {b"completed": b"returnvalue", b"failed": b"failedReason"}
#: The events of a job that is added: those after them are kept, as Redis removes the oldest ones first.
_BEGINS: Final = (b"added", b"duplicated")


class WriteResults(NamedTuple):
    """A write: its number of jobs, and when it began, ms since 1970."""

    jobs: int
    since_ms: int


def find_written(handles: Sequence[QueueHandle], write_id: str) -> WriteResults:
    """Returns what is known of a write.

    Raises OptionError for one that is unknown, does not dispatch jobs, or whose ids are not known.
    """
    found = [(handle, record) for handle in handles if (record := read_record(handle, write_id)) is not None]
    if not found:
        queues = ", ".join(handle.keys.queue for handle in handles) or "any queue"
        raise OptionError(
            f"expected `writeId` to be the id of a write to {queues} of the last 30 days, got: {write_id!r}; see "
            "view=writes"
        )
    for handle, record in found:
        mode = handle.connection.call("HGET", handle.keys.write(write_id), "mode")
        if mode is not None:
            raise OptionError(
                f"expected write {write_id} of {handle.keys.queue} to dispatch jobs, but it has mode={mode.decode()}: "
                "see its record in view=writes"
            )
        if not _has_all_ids(handle, record):
            raise OptionError(
                f"expected write {write_id} of {handle.keys.queue} to have kept the ids of its jobs, but it has not. "
                "The queue was deleted after the write began, or the ids are not consecutive: then write with the "
                "option keepIds=true"
            )
    starts = [record.started_on for _, record in found if record.started_on is not None]
    return WriteResults(sum(record.jobs for _, record in found), min(starts, default=0))


def _has_all_ids(handle: QueueHandle, record: WriteRecord) -> bool:
    """Whether the ids of all jobs that a write has added so far are kept, of the queue that is there now."""
    keys = handle.keys
    keeps, newest, last = handle.connection.pipeline(
        [("HGET", keys.write(record.id), "keepsIds"), ("LINDEX", keys.kept_ids(record.id), -1), ("GET", keys["id"])]
    )
    entry = msgpack.unpackb(newest, raw=True) if newest else None
    if isinstance(entry, dict) and entry[b"last"] > int(last or 0):
        # Another program has deleted the queue, and its ids count from 1 again.
        return False
    if keeps:
        return entry is not None or not (record.added or record.duplicates or record.deduplicated)
    return sum(len(ids) for ids in _kept(handle, record.id)) >= record.done - record.dropped


def _kept(handle: QueueHandle, write_id: str) -> Iterator[range | list[bytes]]:
    """The entries of the kept ids; see core/lua/lib/add_jobs.lua."""
    key, start = handle.keys.kept_ids(write_id), 0
    while packed := handle.connection.call("LRANGE", key, start, start + _CHUNKS - 1):
        for one in packed:
            entry = msgpack.unpackb(one, raw=True)
            yield range(entry[b"first"], entry[b"last"] + 1) if isinstance(entry, dict) else entry
        start += len(packed)


def written_ids(handle: QueueHandle, write_id: str, part: Slice = WHOLE) -> Iterator[str]:
    """The ids of the jobs that a write has added so far, or that were there or kept in their place; in order.

    part: only ids of this slice.
    """
    for entry in _kept(handle, write_id):
        for start in range(0, len(entry), CHUNK_SIZE):
            some = entry[start : start + CHUNK_SIZE]
            ids = [b"%d" % number for number in some] if isinstance(some, range) else [one for one in some if one]
            yield from (job_id.decode("utf-8", "replace") for job_id in compress(ids, part.selects(ids)))


class WrittenIds:
    """The ids of a write, to tell its jobs from others."""

    def __init__(self, handle: QueueHandle, write_id: str) -> None:
        entries = [*_kept(handle, write_id)]
        # They overlap if the counter of the queue began again during the write.
        ranges = sorted((entry.start, entry.stop) for entry in entries if isinstance(entry, range))
        self._starts = [start for start, _ in ranges]
        self._stops = [*accumulate((stop for _, stop in ranges), max)]
        self._ids = {job_id for entry in entries if not isinstance(entry, range) for job_id in entry}

    def has(self, job_id: bytes) -> bool:
        if job_id in self._ids or not job_id.isdigit():
            return job_id in self._ids
        number = int(job_id)
        place = bisect_right(self._starts, number) - 1
        return place >= 0 and number < self._stops[place]


class JobEnd(NamedTuple):
    """How a job has ended: its state, and fields of its hash."""

    state: str
    fields: Mapping[str, Raw]


class WrittenEnds:
    """The ends of the jobs of a queue since a time, ms since 1970.

    strict: whether `of` raises ResultsLost for a job whose events are gone, or that no event tells of.
    """

    def __init__(self, handle: QueueHandle, since_ms: int, *, strict: bool) -> None:
        self._handle = handle
        self._after = f"({since_ms - 1}-18446744073709551615" if since_ms > 0 else "-"
        self._strict = strict
        self._begun: set[bytes] = set()
        self._ends: dict[bytes, JobEnd] = {}

    def of(self, ids: Sequence[bytes]) -> list[JobEnd | None]:
        """The ends of jobs that are gone; None for one that was removed before it had ended. Raises ResultsLost."""
        if self._handle.dialect.has("event-stream"):
            self._read_events()
        ends = [self._ends.get(job_id) for job_id in ids]
        lost = [job_id for job_id, end in zip(ids, ends, strict=True) if end is None and job_id not in self._begun]
        if lost and self._strict:
            raise self._lost(lost)
        return ends

    def _read_events(self) -> None:
        """Reads the events that are new."""
        while entries := self._handle.connection.call(
            "XRANGE", self._handle.keys["events"], self._after, "+", "COUNT", _EVENTS
        ):
            for entry_id, fields in entries:
                event, job_id = fields.get(b"event", b""), fields.get(b"jobId", b"")
                if event in _BEGINS:
                    self._begun.add(job_id)
                elif event in _VALUES:
                    value, time = _VALUES[event], entry_id.partition(b"-")[0]
                    self._ends[job_id] = JobEnd(event.decode(), {value.decode(): fields.get(value), "finishedOn": time})
            self._after = f"({entries[-1][0].decode()}"

    def _lost(self, ids: Sequence[bytes]) -> ResultsLost:
        queue, first = self._handle.keys.queue, ids[0].decode("utf-8", "replace")
        why, advice = f"{self._handle.dialect.name} keeps no events", ""
        if self._handle.dialect.has("event-stream"):
            why = "the event stream was trimmed, or their events were left out (option `events`)"
            advice = ", read results sooner, let BullMQ keep more events (streams.events.maxLen of the Queue)"
        return ResultsLost(
            f"queue {queue}: {len(ids):,} or more jobs of the write are gone, the first is job {first}. Nothing tells "
            f"how they have ended: {why}. Keep jobs longer (removeOnComplete, removeOnFail){advice}, or set "
            "failOnDataLoss=false to get rows with the state NULL"
        )


def read_written(
    handle: QueueHandle,
    ids: Iterable[str],
    states: Sequence[str],
    columns: Sequence[str],
    chunk_size: int,
    ends: WrittenEnds,
) -> Iterator[Chunk]:
    """Jobs by their ids, chunk by chunk; with `states`, those in one of these.

    A job that is gone has its last event's state, value and time; none if it was removed before it had ended. Raises
    ResultsLost.
    """
    remaining = iter(dict.fromkeys(ids))
    while batch := list(islice(remaining, chunk_size)):
        there = set()
        for chunk in read_ids(handle, batch, (), columns, chunk_size):
            there.update(chunk.ids)
            yield from _in_states(chunk, states)
        gone = [job_id.encode() for job_id in batch if job_id.encode() not in there]
        if gone:
            found = ends.of(gone)
            values: Columns = {name: [end and end.fields.get(name) for end in found] for name in hash_fields(columns)}
            chunk = Chunk(gone, [end and end.state for end in found], [None] * len(gone), values)
            yield from _in_states(chunk.opened(handle), states)


def _in_states(chunk: Chunk, states: Sequence[str]) -> Iterator[Chunk]:
    some = chunk.take([place for place, state in enumerate(chunk.states) if not states or state in states])
    if some.ids:
        yield some


def end_of_write(handle: QueueHandle, write_id: str, timeout_s: float) -> WriteEnd:
    """Waits as `wait_for_written`, and counts how the jobs of the queue have ended. Raises OptionError, WaitTimeout."""
    since_ms = find_written([handle], write_id).since_ms
    wait_for_written([handle], write_id, timeout_s)
    states, reasons = Counter[str | None](), Counter[str]()
    ends = WrittenEnds(handle, since_ms, strict=False)
    for chunk in read_written(handle, written_ids(handle, write_id), (), ["failedReason"], CHUNK_SIZE, ends):
        states.update(chunk.states)
        values = zip(chunk.states, chunk.column("failedReason"), strict=True)
        reasons.update((value or b"").decode("utf-8", "replace") for state, value in values if state == "failed")
    return WriteEnd(states["completed"], states["failed"], states[None], dict(reasons.most_common()))


def wait_for_written(handles: Sequence[QueueHandle], write_id: str, timeout_s: float) -> None:
    """Waits until a write has added its jobs to all queues, and all that exist have ended. Raises WaitTimeout.

    timeout_s: may be infinite.
    """
    end_at = monotonic_s() + timeout_s
    for handle in handles:
        _wait_for_added(handle, write_id, timeout_s, end_at)
    for handle in handles:
        ids = written_ids(handle, write_id)
        while batch := list(islice(ids, CHUNK_SIZE)):
            for job_id in _unfinished(handle, batch):
                with suppress(JobFailed, JobMissing):
                    wait_for_job(handle, job_id, max(0.0, end_at - monotonic_s()))


def _wait_for_added(handle: QueueHandle, write_id: str, timeout_s: float, end_at: float) -> None:
    while (record := read_record(handle, write_id)) is not None and record.state == "open":
        left_s = end_at - monotonic_s()
        if left_s <= 0:
            raise WaitTimeout(
                f"expected write {write_id} of {handle.keys.queue} to add all its {record.jobs:,} jobs within "
                f"{timeout_s:g} s, but it has added {record.done:,}: wait longer, or run `spark-bull recover`",
                queue=handle.keys.queue,
                job_id="",
            )
        time.sleep(min(left_s, PAUSE_S))


def _unfinished(handle: QueueHandle, ids: Sequence[str]) -> list[str]:
    ended = ("completed", "failed")
    found = {
        job_id: state
        for chunk in read_ids(handle, ids, (), [ALWAYS_THERE], len(ids))
        for job_id, state in zip(chunk.ids, chunk.states, strict=True)
    }
    return [job_id for job_id in ids if job_id.encode() in found and found[job_id.encode()] not in ended]
