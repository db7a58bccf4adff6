"""The verbs of an operator: pause, resume, retry, promote, remove, clean, drain, obliterate.

All scripts are idempotent: those of pause and resume by their effect, the others by a receipt. A verb for a whole queue
works chunk by chunk, so that no call blocks Redis for long; after an interruption, calling it again does the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from spark_bull.dialects.base import may_be_other_key
from spark_bull.dialects.fields import ALWAYS_THERE
from spark_bull.errors import DialectError, JobError, JobLocked, JobMissing, QueueBusy, WrongState, expected
from spark_bull.queue.handle import CHUNK_SIZE, MOVE_SIZE, QueueHandle
from spark_bull.queue.read import get_job

#: The field with a job's result or error, by its state.
_OUTCOME: Final = {"completed": "returnvalue", "failed": "failedReason"}
_WAITING: Final = ("wait", "paused", "prioritized")
_NOT_CLEANED: Final = "waiting-children"
_NO_LIMIT: Final = 2**53


def pause(handle: QueueHandle) -> None:
    """Keeps workers from claiming further jobs; active jobs continue."""
    while handle.run("pause", {"limit": MOVE_SIZE}):
        pass


def resume(handle: QueueHandle) -> None:
    """Lets workers claim jobs again. No job is lost, whichever version paused the queue or added jobs since."""
    while handle.run("resume", {"limit": MOVE_SIZE}):
        pass


def is_paused(handle: QueueHandle) -> bool:
    """Whether the queue is paused for all workers."""
    return any(handle.connection.pipeline(handle.dialect.paused_checks(handle.keys)))


def retry(handle: QueueHandle, job_id: str, state: str = "failed") -> None:
    """Moves a finished job back to the waiting ones: a failed one, or (BullMQ) a completed one.

    Raises JobMissing, JobLocked, WrongState when it is not in `state`, DialectError for a state without retry.
    """
    allowed = handle.dialect.retryable_states
    if state not in allowed:
        raise DialectError(
            f"expected `state` to be one that {handle.dialect.name} retries from ({', '.join(allowed)}), got: {state!r}"
        )
    args = {"job_id": job_id, "from": state, "outcome": _OUTCOME[state]}
    _check(handle, job_id, handle.run_once("retry", args, **job_keys(handle, job_id), state=handle.keys[state]), state)


def promote(handle: QueueHandle, job_id: str) -> None:
    """Moves a delayed job to the waiting ones. Raises JobMissing, or WrongState when it is not delayed."""
    _check(handle, job_id, handle.run_once("promote", {"job_id": job_id}, **job_keys(handle, job_id)), "delayed")


def remove(handle: QueueHandle, job_id: str, *, with_children: bool = True, chunk_size: int = CHUNK_SIZE) -> None:
    """Removes a job, its logs and (BullMQ) its children; a parent that waited for it alone starts.

    Raises JobMissing; JobLocked while it or a child is locked by a worker, and removes none of them; WrongState for the
    next job of a job scheduler. A tree of more than `chunk_size` jobs takes several calls, each of which can raise
    JobLocked.
    """
    args = {"job_id": job_id, "with_children": int(with_children), "limit": chunk_size}
    answer = [b"open"]
    while answer[0] == b"open":
        answer = handle.run_once("remove", args, **job_keys(handle, job_id))
    _check(handle, job_id, answer, "removable")


def clean(
    handle: QueueHandle,
    grace_ms: int = 0,
    limit: int = 0,
    state: str = "completed",
    *,
    chunk_size: int = CHUNK_SIZE,
) -> list[str]:
    """Removes jobs of a state that are older than `grace_ms`, at most `limit` (0: all); returns their ids.

    Age counts from when a job ended, else from when it started, else from when it was added; in bull-1, which has no
    other time, and for prioritized jobs of BullMQ always from when it was added. Oldest first, except for the finished
    jobs of bull-1, which have no order. Locked jobs and the next jobs of job schedulers stay. Raises OptionError or
    DialectError.
    """
    for name, number in (("grace_ms", grace_ms), ("limit", limit)):
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise expected(name, "an integer >= 0", number)
    handle.dialect.state_key(state)
    if state == _NOT_CLEANED:
        raise DialectError(f"jobs in {state} can't be cleaned, as others depend on them: remove them one by one")
    ids: list[str] = []
    before = handle.connection.now_ms() - grace_ms
    position: bytes = b"0"
    while position:
        args = {
            "before": before,
            "finished": int(state in _OUTCOME),
            "state": state,
            "removed": len(ids),
            "limit": limit - len(ids) if limit else _NO_LIMIT,
        }
        position, removed = _sweep(handle, "clean", state, position, chunk_size, args)
        ids.extend(job_id.decode() for job_id in removed)
    return ids


def drain(handle: QueueHandle, *, delayed: bool = False, chunk_size: int = CHUNK_SIZE) -> int:
    """Removes all jobs that wait for a worker, with `delayed` also the delayed ones; returns how many.

    A paused queue stays paused; the next jobs of job schedulers stay.
    """
    states = [state for state in (*_WAITING, *(["delayed"] if delayed else [])) if state in handle.dialect.states]
    return sum(_drained(handle, state, chunk_size) for state in states)


def _drained(handle: QueueHandle, state: str, chunk_size: int) -> int:
    removed, position = 0, b"0"
    while position:
        position, count = _sweep(handle, "drain", state, position, chunk_size, {"limit": _NO_LIMIT})
        removed += int(count)
    return removed


def obliterate(handle: QueueHandle, *, force: bool = False, chunk_size: int = CHUNK_SIZE) -> None:
    """Deletes a queue with all its jobs. It is paused until it is deleted.

    Raises QueueBusy when jobs are active, unless `force`: then outcomes of these jobs are rejected. Staged and
    registered writes stay: their jobs are added to the new queue. A parent that waits for children of another queue
    stays, as in BullMQ. Receipts of other processes expire within an hour.
    """
    args = {"limit": chunk_size, "move": MOVE_SIZE, "force": int(force)}
    while True:
        state, *active = handle.run_once("obliterate", args)
        if state == b"done":
            # The reply has arrived: the receipt of this thread is not needed any more.
            handle.connection.call("UNLINK", handle.keys.receipt(handle.sender))
            return
        if state == b"active":
            raise _busy(handle, int(active[0]))


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


def _sweep(
    handle: QueueHandle, verb: str, state: str, position: bytes, size: int, args: Mapping[str, Any]
) -> tuple[bytes, Any]:
    """Processes one slice of a state; see lua/lib/sweep.lua. Returns the next position, empty at the end."""
    store = handle.dialect.state_key(state)
    slice_args = {"kind": store.kind, "position": position, "size": size}
    reached, result = handle.run_once(verb, {**args, **slice_args}, state=handle.keys[store.key])
    return _as_bytes(reached), result


def _as_bytes(position: bytes | int) -> bytes:
    return position if isinstance(position, bytes) else b"%d" % position


def job_keys(handle: QueueHandle, job_id: str) -> dict[str, str]:
    """The keys of a job. Raises JobMissing for an id that is the name of another key of the queue, such as `wait`."""
    if may_be_other_key(job_id) and not _is_job(handle, job_id):
        raise job_error(handle, job_id, "missing", "", "")
    return {"job": handle.keys.job(job_id), "lock": handle.keys.lock(job_id)}


def _is_job(handle: QueueHandle, job_id: str) -> bool:
    key = handle.keys.job(job_id)
    return bool(handle.connection.call("TYPE", key) == b"hash" and handle.connection.call("HEXISTS", key, ALWAYS_THERE))


def _check(handle: QueueHandle, job_id: str, answer: list[bytes], wanted: str) -> None:
    """Raises the error that a script has returned for a job."""
    result, *detail = answer
    if result != b"done":
        raise job_error(handle, job_id, result.decode(), detail[0].decode() if detail else "", wanted)


def job_error(handle: QueueHandle, job_id: str, result: str, detail: str, wanted: str) -> JobError:
    queue = handle.keys.queue
    subject = f"job {job_id} of queue {queue}"
    if result == "missing":
        return JobMissing(f"expected a job {job_id} in queue {queue}, found none", queue=queue, job_id=job_id)
    if result == "locked":
        return JobLocked(
            f"{detail or subject} is locked by a worker: wait until it has finished, or until its lock expires",
            queue=queue,
            job_id=job_id,
        )
    if result == "scheduled":
        return WrongState(
            f"{subject} is the next job of a job scheduler: remove the scheduler instead", queue=queue, job_id=job_id
        )
    job = get_job(handle, job_id)
    return WrongState(
        f"expected {subject} to be {wanted}, it is {job.state if job and job.state else 'in no state'}",
        queue=queue,
        job_id=job_id,
    )
