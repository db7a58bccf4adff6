"""Adds jobs to a queue, chunk by chunk. Every call is idempotent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final
from uuid import uuid4

from spark_bull.core.dialects.encode.chunks import EncodedJobs, pack
from spark_bull.core.dialects.encode.codec import carrying, encode, rows_of
from spark_bull.core.errors import OptionError, expected
from spark_bull.core.model.jobs import Added, NewJob
from spark_bull.core.queue.dispatch import verbs
from spark_bull.core.queue.dispatch.parents import rejection
from spark_bull.core.queue.handle.admission import LengthLimit, Refusal, RoomWait, intake_closed, queue_full
from spark_bull.core.queue.handle.handle import QueueHandle, keys_of

_ADDED_BEFORE: Final = "these were not added, jobs before them were"


def add_chunk(
    handle: QueueHandle,
    sender: str,
    number: int | str,
    rows: int,
    packed: bytes,
    *,
    want_ids: bool,
    limit: LengthLimit | None = None,
    respects_intake: bool = True,
    write_id: str | None = None,
) -> Added:
    """Adds one packed chunk of `rows` jobs, in as many calls as the script needs.

    `sender` and `number` identify the calls. limit: maximum length of the queue. respects_intake: whether a closed
    queue refuses the jobs. write_id: the write that keeps the ids. Raises IntakeClosed and QueueFull; no job of the
    chunk was added, unless it took several calls.
    """
    parts: list[Added] = []
    wait = RoomWait(handle.keys.queue, limit) if limit else None
    first = 1
    while first <= rows:
        reply = verbs.add(
            handle,
            handle.keys.receipt(sender),
            number,
            packed,
            first=first,
            want_ids=want_ids,
            limit=limit,
            respects_intake=respects_intake,
            write_id=write_id,
        )
        if isinstance(reply, Refusal):
            if limit is None or wait is None or reply.reason == "closed":
                raise intake_closed(handle.keys.queue)
            if limit.when_full != "wait":
                raise queue_full(handle.keys.queue, reply.length, limit.max_length, rows - first + 1, _ADDED_BEFORE)
            wait.pause(reply.length, first - 1, rows)
            continue
        if wait is not None:
            wait.reset()
        first = reply.first
        ids = [_id_text(job_id) for job_id in reply.ids]
        rejected = {row - 1: reason.decode() for row, reason in reply.rejected}
        parts.append(Added(ids, reply.added, reply.duplicates, reply.deduplicated, rejected, reply.dropped))
    return sum_of(parts)


def _id_text(value: bytes | int) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def sum_of(parts: Iterable[Added]) -> Added:
    """The results of several calls as one. The positions of rejected jobs are not changed."""
    ids: list[str] = []
    added = duplicates = deduplicated = dropped = 0
    rejected: dict[int, str] = {}
    for part in parts:
        rejected |= part.rejected
        ids.extend(part.ids)
        added += part.added
        duplicates += part.duplicates
        deduplicated += part.deduplicated
        dropped += part.dropped
    return Added(ids, added, duplicates, deduplicated, rejected, dropped)


def kept(handle: QueueHandle, jobs: EncodedJobs, source: str | None, numbers: Iterable[int | str]) -> EncodedJobs:
    """The jobs of a queue, with their payloads as Redis keeps them.

    source: names what adds the jobs once: a call, or one attempt of a task, as others may add the same rows; None: all
    payloads stay in Redis. numbers: places of the jobs among all jobs of the source. Raises OptionError and
    PayloadNotStored.
    """
    if handle.payloads.passes(jobs.data):
        return jobs
    sources = [None if source is None else f"{source}:{number}" for number in numbers]
    data = [handle.kept("data", text, one) for text, one in zip(jobs.data, sources, strict=True)]
    return replace(jobs, data=data)


def add_child(
    handle: QueueHandle, parent_id: str, job: NewJob, queue: str | None, on_failure: str, context: str = ""
) -> str:
    """Adds a job as a child of a job of the queue of `handle`; returns its id.

    queue: of the child; None: the same. on_failure: see NewJob. context: trace context for the child to carry.
    A closed intake of the queue does not refuse it. Raises OptionError, DialectError, and ParentError.
    """
    handle.dialect.require("flows")
    if not isinstance(job, NewJob):
        raise expected("job", 'a NewJob, such as NewJob({"to": "ada"})', job)
    if job.parent is not None:
        raise OptionError(f"expected a job without `parent`, which is job {parent_id}, got: {job.parent!r}")
    keys = handle.keys
    there = handle if queue is None else replace(handle, keys=keys_of(handle, queue, "a child"))
    child = replace(job, parent={"queue": f"{keys.prefix}:{keys.queue}", "id": parent_id, "onFailure": on_failure})
    call = uuid4().hex
    jobs = kept(there, encode(there.dialect, rows_of([child]), carrying(context), [0]), call, [0])
    added = add_chunk(there, there.sender, call, 1, pack(jobs), want_ids=True, respects_intake=False)
    for row, reason in added.rejected.items():
        raise rejection(row, reason)
    return added.ids[0]
