"""Adds a child to a job that is processed."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

from spark_bull.core.dialects.encode.chunks import pack
from spark_bull.core.dialects.encode.codec import carrying, encode, rows_of
from spark_bull.core.errors import OptionError, expected
from spark_bull.core.model.jobs import NewJob
from spark_bull.core.queue.dispatch.add import add_chunk
from spark_bull.core.queue.dispatch.kept import kept
from spark_bull.core.queue.dispatch.parents import rejection
from spark_bull.core.queue.handle.handle import QueueHandle, keys_of


def add_child(
    handle: QueueHandle, parent_id: str, job: NewJob, queue: str | None, on_failure: str, context: str = ""
) -> str:
    """Adds a job as a child of a job of the queue of `handle`; returns its id.

    queue: that of the child; None: the same. on_failure: see NewJob. context: trace context for the child to carry.
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
