"""Adds jobs to a queue, chunk by chunk, and says why a job can't be the child of a parent. Every call is idempotent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple
from uuid import uuid4

from spark_bull.core.dialects.encode.chunks import EncodedJobs, listed, pack
from spark_bull.core.dialects.encode.codec import carrying, encode, rows_of
from spark_bull.core.errors import OptionError, ParentError, expected
from spark_bull.core.model.jobs import Added, NewJob
from spark_bull.core.queue.handle.admission import LengthLimit, RoomWait, intake_closed, queue_full, refusal_of
from spark_bull.core.queue.handle.handle import RECEIPT_TTL_MS, RECORD_TTL_MS, QueueHandle, keys_of

#: Why a script has rejected a child -> the message.
REASONS: Final[Mapping[str, str]] = {
    "missing": "expected the parent of the job to exist, but it is missing: add it first, or add both as a flow",
    "other parent": "expected a job without another parent, but it exists and has one: use another `jobId`",
    "itself": "expected another parent than the job itself, which ends",
    "cycle": "expected a parent that does not depend on the job itself, but it does: leave `parent` out",
}
#: Maximum number of ancestors in which a cycle is looked for, as in the scripts.
_MOST_ANCESTORS: Final = 100


def rejection(row: int | str, reason: str, others: str = "jobs") -> ParentError:
    """The error for a job that a script has rejected. others: what else was added with the same call."""
    return ParentError(f"row {row}: {REASONS[reason]}; {others} without such an error were added")


def check_queues(handle: QueueHandle, jobs: EncodedJobs) -> None:
    """Raises OptionError for a parent in a queue that no script can reach together with the queue of `handle`, and
    DialectError for one in a queue of another dialect.
    """
    if jobs.parent_id is not None:
        parents_of(handle, jobs)


def check_parents(handle: QueueHandle, jobs: EncodedJobs, numbers: Sequence[int | str]) -> None:
    """Raises OptionError for a job whose parent is missing, or in a queue that no script can reach together with the
    queue of `handle`, and as `check_other_parents` does.

    numbers: row numbers, for errors. Scripts check jobs again, which may have changed by then.
    """
    if jobs.parent_id is None:
        return
    parents = parents_of(handle, jobs)
    existing = _existing(handle, parents.values())
    for position, parent in parents.items():
        if parent not in existing:
            raise refused(numbers[position], "missing", parent)
    check_other_parents(handle, jobs, numbers)


def check_other_parents(handle: QueueHandle, jobs: EncodedJobs, numbers: Sequence[int | str]) -> None:
    """Raises OptionError for a job that exists and has another parent than the given one, which exists, too, and for
    one on which the given parent depends.
    """
    parents, ids = parents_of(handle, jobs), listed(jobs.job_id, jobs.n)
    children = {position: handle.keys.job(job_id) for position in parents if (job_id := ids[position]) is not None}
    replies = handle.connection.pipeline([("HMGET", child, "timestamp", "parentKey") for child in children.values()])
    existing = {position: reply[1] for position, reply in zip(children, replies, strict=True) if reply[0]}
    others = {
        position: parent
        for position, other in existing.items()
        if other and (parent := other.decode("utf-8", "replace")) != parents[position]
    }
    living = _existing(handle, others.values())
    for position, other in others.items():
        if other in living:
            raise refused(numbers[position], "other parent", children[position])
    ancestors = {position: parents[position] for position in existing}
    for _ in range(_MOST_ANCESTORS):
        for position, ancestor in ancestors.items():
            if ancestor == children[position]:
                raise refused(numbers[position], "cycle", ancestor)
        above = handle.connection.pipeline([("HGET", ancestor, "parentKey") for ancestor in ancestors.values()])
        ancestors = {
            position: key.decode("utf-8", "replace") for position, key in zip(ancestors, above, strict=True) if key
        }
        if not ancestors:
            break


def parents_of(handle: QueueHandle, jobs: EncodedJobs) -> dict[int, str]:
    """The keys of the parents, by the positions of their children."""
    keys = {}
    queues, ids = listed(jobs.parent_queue, jobs.n), listed(jobs.parent_id, jobs.n)
    for position, (queue, parent_id) in enumerate(zip(queues, ids, strict=True)):
        if queue is not None and parent_id is not None:
            prefix, _, name = queue.rpartition(":")
            keys[position] = keys_of(handle, name, "a parent", prefix or None).job(parent_id)
    return keys


def _existing(handle: QueueHandle, keys: Iterable[str]) -> set[str]:
    distinct = list(dict.fromkeys(keys))
    replies = handle.connection.pipeline([("EXISTS", key) for key in distinct])
    return {key for key, exists in zip(distinct, replies, strict=True) if exists}


def refused(row: int | str, reason: str, key: str) -> OptionError:
    """The error for a job that no script has got. key: of the parent, or of the job."""
    return OptionError(f"row {row}, column `parent`: {REASONS[reason]}; got: {key}")


_ADDED_BEFORE: Final = "these were not added, jobs before them were"


class AddReply(NamedTuple):
    """`first`: number of the first row that was not processed. `ids`: of new and known jobs, if wanted.
    `rejected`: rows that were not added as children, counted from 1, and why. `dropped`: rows that had no room.
    """

    first: int
    added: int
    duplicates: int
    deduplicated: int
    ids: list[bytes | int]
    rejected: Sequence[tuple[int, bytes]] = ()
    dropped: int = 0


def adding_args(
    handle: QueueHandle, number: int | str, packed: bytes, *, want_ids: bool, limit: LengthLimit | None = None
) -> dict[str, Any]:
    """The arguments of a script that adds a packed chunk."""
    max_length, when_full = limit or ("", "")
    return {
        "number": number,
        "chunk": packed,
        "want_ids": int(want_ids),
        "ttl_ms": RECEIPT_TTL_MS,
        "max_length": max_length,
        "when_full": when_full,
        "writes": handle.keys.writes,
        "kept_ids_ttl_ms": RECORD_TTL_MS,
    }


def adding_keys(handle: QueueHandle, sender: str, write_id: str | None) -> dict[str, str | None]:
    """The keys of a script that adds a chunk. write_id: the write that keeps the ids."""
    kept_ids = None if write_id is None else handle.keys.kept_ids(write_id)
    return {"receipt": handle.keys.receipt(sender), "kept_ids": kept_ids}


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
    args = adding_args(handle, number, packed, want_ids=want_ids, limit=limit)
    keys = adding_keys(handle, sender, write_id)
    if not respects_intake:
        keys["intake_closed"] = None
    first = 1
    while first <= rows:
        answer = handle.run("add", {**args, "from": first}, **keys)
        if refusal := refusal_of(answer):
            if limit is None or wait is None or refusal.reason == "closed":
                raise intake_closed(handle.keys.queue)
            if limit.when_full != "wait":
                raise queue_full(handle.keys.queue, refusal.length, limit.max_length, rows - first + 1, _ADDED_BEFORE)
            wait.pause(refusal.length, first - 1, rows)
            continue
        if wait is not None:
            wait.reset()
        reply = AddReply(*answer)
        first = reply.first
        ids = [one.decode("utf-8", "replace") if isinstance(one, bytes) else str(one) for one in reply.ids]
        rejected = {row - 1: reason.decode() for row, reason in reply.rejected}
        parts.append(Added(ids, reply.added, reply.duplicates, reply.deduplicated, rejected, reply.dropped))
    return sum_of(parts)


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


def sealed(handle: QueueHandle, jobs: EncodedJobs, source: str | None, numbers: Iterable[int | str]) -> EncodedJobs:
    """The jobs of a queue, with their payloads as Redis keeps them.

    source: names what adds the jobs once: a call, or one attempt of a task, as others may add the same rows; None: all
    payloads stay in Redis. numbers: places of the jobs among all jobs of the source. Raises OptionError and
    PayloadNotStored.
    """
    if handle.payloads.passes(jobs.data):
        return jobs
    sources = [None if source is None else f"{source}:{number}" for number in numbers]
    data = [handle.sealed("data", text, one) for text, one in zip(jobs.data, sources, strict=True)]
    return jobs._replace(data=data)


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
    jobs = sealed(there, encode(there.dialect, rows_of([child]), carrying(context), [0]), call, [0])
    added = add_chunk(there, there.sender, call, 1, pack(jobs), want_ids=True, respects_intake=False)
    for row, reason in added.rejected.items():
        raise rejection(row, reason)
    return added.ids[0]
