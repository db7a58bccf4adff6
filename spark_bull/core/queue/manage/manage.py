"""Changes and removes jobs, one or many, and the states of a queue; and words the errors of refusals.

Each change works chunk by chunk, so that no call blocks Redis for long; after an interruption, calling it again does
the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, islice
from operator import attrgetter
from typing import Any, Final, NamedTuple
from uuid import uuid4

from spark_bull.core.dialects.base import json_text, may_be_other_key
from spark_bull.core.dialects.changes import ACTIONS, COLUMNS, REMOVABLE, encode_changes
from spark_bull.core.dialects.encode.chunks import packed_map
from spark_bull.core.dialects.fields import ONLY_OF_JOBS
from spark_bull.core.errors import JobError, JobLocked, OptionError, QueueBusy, WrongState, encodable
from spark_bull.core.keys import QueueKeys
from spark_bull.core.model.limits import NO_WORKER
from spark_bull.core.model.read_jobs import Change, Changed
from spark_bull.core.options.table import QueueOptions
from spark_bull.core.payloads.policy import Kind
from spark_bull.core.queue.handle.handle import (
    CHUNK_SIZE,
    RECEIPT_TTL_MS,
    WRITES_SIZE,
    QueueHandle,
    deletion_args,
    keys_of,
    touched_keys,
)
from spark_bull.core.queue.handle.report import job_missing
from spark_bull.core.queue.jobs.objects import deleting_objects
from spark_bull.core.queue.jobs.read import read_job


def is_paused(handle: QueueHandle) -> bool:
    """Whether the queue is paused for all workers."""
    return any(handle.connection.pipeline(handle.dialect.pause_marks(handle.keys)))


def remove(handle: QueueHandle, job_id: str, *, with_children: bool = True, chunk_size: int = CHUNK_SIZE) -> None:
    """Removes a job, its logs and (BullMQ) its children; a parent that waited for it alone starts.

    Raises JobMissing. Raises JobLocked while a worker has locked it or a child, and removes none of them. Raises
    WrongState for the next job of a job scheduler, and for a job with more than 1,000 levels of children. A tree of
    more than `chunk_size` jobs takes several calls, each of which can raise JobLocked.
    """
    args = {"job_id": job_id, "with_children": int(with_children), "limit": chunk_size}
    result, locked = b"open", b""
    with deleting_objects(handle, lambda: [job_id.encode()]):
        while result == b"open":
            check_job_id(handle, job_id)
            result, *rest = handle.run_once("remove", args, job=handle.keys.job(job_id), lock=handle.keys.lock(job_id))
            locked = rest[0] if rest else b""
    if result != b"done":
        raise job_error(handle, job_id, result.decode(), REMOVABLE, locked.decode())


def obliterate(handle: QueueHandle, *, force: bool = False) -> None:
    """Deletes a queue with all its jobs. It is paused until it is deleted.

    Raises QueueBusy when jobs are active, unless `force`: then outcomes of these jobs are rejected. Staged and
    registered writes stay: their jobs are added to the new queue. Records and watermarks of writes stay, too. A parent
    that waits for children of another queue stays, as in BullMQ. Receipts of other processes expire within an hour.
    """
    args = deletion_args(handle) | {"force": int(force)}
    # The position counts writes, from the latest on, whose kept ids a call removes before it removes jobs.
    for position in count(step=WRITES_SIZE):
        state, *active = handle.run_once("obliterate", {**args, "position": position})
        if state == b"done":
            # The reply has arrived: the receipt of this thread is not needed any more.
            handle.connection.call("UNLINK", handle.keys.receipt(handle.sender))
            return
        if state == b"active":
            raise _busy(handle, *active)


def check_obliterate(handle: QueueHandle) -> None:
    """Raises QueueBusy when `obliterate` would, and changes nothing."""
    active = int(handle.connection.call("LLEN", handle.keys["active"]))
    if active:
        raise _busy(handle, active)


def _busy(handle: QueueHandle, active: int) -> QueueBusy:
    queue = handle.keys.queue
    return QueueBusy(
        f"expected no active job in queue {queue}, got {active:,}: stop its workers first, or obliterate it with force",
        queue=queue,
        active=active,
    )


def check_job_id(handle: QueueHandle, job_id: str) -> None:
    """Raises JobMissing for the name of another key of the queue, such as `wait`; OptionError for no text."""
    key, call = handle.keys.job(job_id), handle.connection.call
    if not may_be_other_key(job_id):
        return
    if call("TYPE", key) != b"hash" or not any(call("HMGET", key, *ONLY_OF_JOBS)):
        raise job_missing(handle, job_id)


def job_error(handle: QueueHandle, job_id: str, result: str, wanted: str, locked: str = "") -> JobError:
    """The error for a job that a verb has refused. wanted: the state that was expected. locked: key of a locked job."""
    queue = handle.keys.queue
    subject = f"job {job_id} of queue {queue}"
    if result == "missing":
        return job_missing(handle, job_id)
    if result == "locked":
        why = f"{locked or subject} is locked by a worker: wait until it has finished, or until its lock expires"
        return JobLocked(why, queue=queue, job_id=job_id)
    if result == "scheduled":
        why = f"{subject} is the next job of a job scheduler: remove the scheduler instead"
    else:
        job = read_job(handle, job_id)
        why = f"expected {subject} to be {wanted}, it is {job.state if job and job.state else 'in no state'}"
    return WrongState(why, queue=queue, job_id=job_id)


def remove_unprocessed_children(handle: QueueHandle, job_id: str, *, chunk_size: int = CHUNK_SIZE) -> int:
    """Removes descendants of a job that have not ended and are not locked; returns how many.

    Raises DialectError, and JobMissing for a job that does not exist.
    """
    handle.dialect.require("flows")
    check_job_id(handle, job_id)
    position, total = b"0", 0
    while position:
        args = {"position": position, "limit": chunk_size}
        reply = handle.run_once("remove_unprocessed_children", args, job=handle.keys.job(job_id))
        if reply == [b"missing"]:
            if total:
                return total
            raise job_missing(handle, job_id)
        position, total = position_of(reply[0]), total + int(reply[1])
    return total


def position_of(reply: bytes | int) -> bytes:
    """The position to go on from that a script returns; b"" at the end."""
    return reply if isinstance(reply, bytes) else b"%d" % reply


def free(handle: QueueHandle, deduplication_id: str, job_id: str | None = None) -> bool:
    """Frees a deduplication id, if it belongs to `job_id` (None: to any job). Returns whether it did.

    Raises DialectError.
    """
    handle.dialect.require("deduplication")
    holder = handle.keys.deduplication(deduplication_id)
    return bool(handle.run_once("free_deduplication", {"job_id": job_id or ""}, holder=holder))


_BATCH: Final = 10_000
#: The texts of a change that are kept as texts of jobs are.
_KINDS: Final[Mapping[str, Kind]] = {"data": "data", "value": "returnvalue"}


class ChangeChunk(NamedTuple):
    """Changes for one script: their number, and the other queues that jobs are moved to."""

    rows: int
    packed: bytes
    queues: tuple[str, ...]


def change_chunks(
    handle: QueueHandle,
    rows: Mapping[str, Sequence[Any]],
    numbers: Sequence[int | str],
    most_jobs: int,
    most_bytes: int,
    found_in: str | None = None,
) -> Iterator[ChangeChunk]:
    """Checks changes and packs them; see `encode_changes`. found_in: the state that all jobs must have; None: any.

    A job of a state that is a list can be in any list: looking for it would cost a scan.
    """
    state = found_in and handle.dialect.state_key(found_in)
    wanted = {"from": "unknown" if state.kind == "list" else state.key} if state else {}

    def base_of(queue: str) -> str:
        if queue == handle.keys.queue:
            raise OptionError(f"expected `to` to be another queue, got the job's own: {queue!r}")
        return keys_of(handle, queue, "a moved job").base

    part: list[dict[str, Any]] = []
    size = 0
    for encoded in encode_changes(handle.dialect, rows, base_of, numbers):
        change = _kept(handle, encoded) | wanted
        bytes_of = sum(len(value) for value in change.values() if isinstance(value, str))
        if part and (len(part) >= most_jobs or size + bytes_of > most_bytes):
            yield _chunk(part)
            part, size = [], 0
        part.append(change)
        size += bytes_of
    if part:
        yield _chunk(part)


def _kept(handle: QueueHandle, change: dict[str, Any]) -> dict[str, Any]:
    """A change, with its payload or result as Redis keeps it."""
    keys = QueueKeys(change["to"], handle.keys.prefix) if "to" in change else handle.keys
    texts = {name: kind for name, kind in _KINDS.items() if name in change}
    source = uuid4().hex
    return change | {name: handle.payloads.sealed(keys, kind, change[name], source) for name, kind in texts.items()}


def _chunk(changes: Sequence[Mapping[str, Any]]) -> ChangeChunk:
    names = dict.fromkeys(name for change in changes for name in change)
    columns: dict[str, Any] = {name: [change.get(name) for change in changes] for name in names}
    if len(set(columns["action"])) == 1:
        columns["action"] = columns["action"][0]
    queues = tuple(sorted({queue for queue in columns.get("to", ()) if queue is not None}))
    return ChangeChunk(len(changes), packed_map({"n": len(changes), **columns}), queues)


def manage_chunk(handle: QueueHandle, sender: str, number: int | str, chunk: ChangeChunk) -> list[str]:
    """Changes the jobs of a chunk, in as many calls as the script needs; returns the outcomes.

    `sender` and `number` identify the calls.
    """
    outcomes: list[str] = []
    args = {"chunk": chunk.packed, "ttl_ms": RECEIPT_TTL_MS, **NO_WORKER}
    receipt, touched = handle.keys.receipt(sender), touched_keys(handle, chunk.queues)
    first, calls = 1, 0
    while first <= chunk.rows:
        args |= {"number": f"{number}.{calls}", "from": first}
        first, made = handle.run("manage", args, receipt=receipt, touched=touched)
        outcomes += [outcome.decode() for outcome in made]
        calls += 1
    return outcomes


def change_jobs(handle: QueueHandle, changes: Iterable[Change], chunk_size: int, chunk_bytes: int) -> Iterator[Changed]:
    """Changes jobs, and yields what became of each change, in order.

    Raises OptionError or DialectError for a wrong one; changes of earlier batches were made then.
    """
    remaining, first = iter(changes), 0
    while batch := list(islice(remaining, _BATCH)):
        numbers = range(first, first + len(batch))
        chunks = list(change_chunks(handle, rows_of(batch), numbers, chunk_size, chunk_bytes))
        outcomes = _made(handle, batch, chunks)
        for change, outcome in zip(batch, outcomes, strict=True):
            yield Changed(change.id, change.action, outcome)
        first += len(batch)


def _made(handle: QueueHandle, changes: Sequence[Change], chunks: Sequence[ChangeChunk]) -> Iterator[str]:
    """Makes the changes of chunks as their outcomes are read."""
    removed = [str(change.id).encode() for change in changes if change.action == "remove"]
    with deleting_objects(handle, lambda: removed):
        for chunk in chunks:
            yield from manage_chunk(handle, handle.sender, uuid4().hex, chunk)


def rows_of(changes: Sequence[Change]) -> dict[str, list[Any]]:
    """Changes as columns, by the names of COLUMNS."""
    rows = {name: [*map(attrgetter(QueueOptions.spelled(name)), changes)] for name in COLUMNS}
    for name in ("data", "returnvalue"):
        rows[name] = [None if value is None else json_text(name, value) for value in rows[name]]
    return rows


def change_job(handle: QueueHandle, change: Change) -> None:
    """Changes one job. Raises JobMissing, JobLocked or WrongState when it can't be changed, and OptionError or
    DialectError as `change_jobs` does.
    """
    encodable("job_id", change.id)
    (changed,) = change_jobs(handle, [change], 1, 1)
    if changed.outcome != "done":
        raise error_of(handle, changed, change)


def error_of(handle: QueueHandle, changed: Changed, change: Change | None = None) -> JobError:
    """The error for a change that was not made; `change`: the whole of it, where it is known."""
    if changed.outcome == "exists":
        return WrongState(
            f"expected queue {change and change.to} to have no job {changed.id}, it has one: remove it first, or leave "
            "this one",
            queue=handle.keys.queue,
            job_id=changed.id,
        )
    wanted = (change and change.state) or ACTIONS[changed.action].wanted
    return job_error(handle, changed.id, changed.outcome, wanted)


def check_managed(handle: QueueHandle, stage: str, number: int) -> tuple[str, str, str] | None:
    """Finds the first job of a staged chunk that can't be changed: its id, the action, and why."""
    reply = handle.run("check_managed", {"number": number}, stage=stage)
    if not reply:
        return None
    job_id, action, reason = (part.decode() for part in reply)
    return job_id, action.replace("_", "-"), reason
