"""The jobs of one write of Spark that keeps their ids (`keepIds`)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, islice
from typing import Final

import msgpack

from spark_bull.clock import monotonic_s
from spark_bull.dialects.fields import ALWAYS_THERE
from spark_bull.errors import JobFailed, JobMissing, OptionError, WaitTimeout
from spark_bull.queue.core.handle import CHUNK_SIZE, QueueHandle
from spark_bull.queue.core.walk import WHOLE, Slice
from spark_bull.queue.dispatch.writes import read_record
from spark_bull.queue.events.waiting import wait_for_job
from spark_bull.queue.jobs.read import Chunk, hash_fields, read_ids

#: Chunks of ids that one call reads.
_CHUNKS: Final = 20
#: Time between two looks at a write that is not finished.
_PAUSE_S: Final = 0.2


def check_kept(handles: Sequence[QueueHandle], write_id: str) -> int:
    """Returns the number of jobs of a write. Raises OptionError for a write that is unknown, or has kept no ids."""
    found = [(handle, record) for handle in handles if (record := read_record(handle, write_id)) is not None]
    if not found:
        queues = ", ".join(handle.keys.queue for handle in handles) or "any queue"
        raise OptionError(
            f"expected `writeId` to be the id of a write to {queues} of the last 30 days, got: {write_id!r}; see "
            "view=writes"
        )
    for handle, record in found:
        if record.added and not handle.connection.call("EXISTS", handle.keys.kept_ids(write_id)):
            raise OptionError(
                f"expected write {write_id} of {handle.keys.queue} to have kept the ids of its jobs, but it has not: "
                "write with the option keepIds=true"
            )
    return sum(record.jobs for _, record in found)


def written_ids(handle: QueueHandle, write_id: str, part: Slice = WHOLE) -> Iterator[str]:
    """The ids of the jobs that a write has added so far, or that were there or kept in their place; in order.

    part: only those of this slice.
    """
    key, start = handle.keys.kept_ids(write_id), 0
    while packed := handle.connection.call("LRANGE", key, start, start + _CHUNKS - 1):
        for chunk in packed:
            ids = [job_id for job_id in msgpack.unpackb(chunk, raw=True) if job_id]
            yield from (job_id.decode("utf-8", "replace") for job_id in compress(ids, part.selects(ids)))
        start += len(packed)


def read_written(
    handle: QueueHandle, ids: Iterable[str], states: Sequence[str], columns: Sequence[str], chunk_size: int
) -> Iterator[Chunk]:
    """Jobs by their ids, chunk by chunk. Those that are gone have no state and no fields; none if `states` is given."""
    remaining = iter(dict.fromkeys(ids))
    while batch := list(islice(remaining, chunk_size)):
        there = set()
        for chunk in read_ids(handle, batch, states, columns, chunk_size):
            there.update(chunk.ids)
            yield chunk
        gone = [] if states else [job_id.encode() for job_id in batch if job_id.encode() not in there]
        if gone:
            nothing = [None] * len(gone)
            yield Chunk(gone, [*nothing], [*nothing], {name: [*nothing] for name in hash_fields(columns)})


def wait_for_written(handle: QueueHandle, write_id: str, timeout_s: float) -> None:
    """Waits until a write has added its jobs, and all that exist have ended. Raises WaitTimeout."""
    end_at = monotonic_s() + timeout_s
    while (record := read_record(handle, write_id)) is not None and record.state == "open":
        left_s = end_at - monotonic_s()
        if left_s <= 0:
            raise WaitTimeout(
                f"expected write {write_id} of {handle.keys.queue} to add all its {record.jobs:,} jobs within "
                f"{timeout_s:g} s, but it has added {record.done:,}: wait longer, or run `spark-bull recover`",
                queue=handle.keys.queue,
                job_id="",
            )
        time.sleep(min(left_s, _PAUSE_S))
    ids = written_ids(handle, write_id)
    while batch := list(islice(ids, CHUNK_SIZE)):
        for job_id in _unfinished(handle, batch):
            try:
                wait_for_job(handle, job_id, max(0.0, end_at - monotonic_s()))
            except (JobFailed, JobMissing):
                continue


def _unfinished(handle: QueueHandle, ids: Sequence[str]) -> list[str]:
    ended = ("completed", "failed")
    found = {
        job_id: state
        for chunk in read_ids(handle, ids, (), [ALWAYS_THERE], len(ids))
        for job_id, state in zip(chunk.ids, chunk.states, strict=True)
    }
    return [job_id for job_id in ids if job_id.encode() in found and found[job_id.encode()] not in ended]
