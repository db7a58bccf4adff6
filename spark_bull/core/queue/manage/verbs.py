"""The verbs of operators: one function for each script, with its name; see core/queue/handle/verbs.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgpack

from spark_bull.core.model.limits import NO_WORKER
from spark_bull.core.queue.handle.handle import MOVE_SIZE, RECEIPT_TTL_MS, WRITES_SIZE, QueueHandle
from spark_bull.core.queue.handle.walk import Sweep


class JobKeys(NamedTuple):
    """The keys of one job."""

    job: str
    lock: str


class JobReply(NamedTuple):
    """What became of a call for one job: done, open (call again), or why nothing was changed.

    detail: key of the locked job, if any.
    """

    result: str
    detail: str = ""


def _job_reply(reply: Sequence[bytes]) -> JobReply:
    return JobReply(*(part.decode() for part in reply))


def free_deduplication(handle: QueueHandle, holder: str, job_id: str) -> bool:
    """Frees a deduplication id, if it belongs to a job ("": to any). Returns whether it did."""
    return bool(handle.run_once("free_deduplication", {"job_id": job_id}, holder=holder))


def pause(handle: QueueHandle, *, first: bool) -> int:
    """Pauses the queue. Returns the number of jobs that are still to be moved: call again until 0, not as the first."""
    return int(handle.run_once("pause", {"limit": MOVE_SIZE, "first": int(first)}))


def resume(handle: QueueHandle) -> int:
    """Resumes the queue. Returns the number of jobs that are still to be moved: call again until 0."""
    return int(handle.run_once("resume", {"limit": MOVE_SIZE}))


def set_limits(handle: QueueHandle, limits: Mapping[str, int], removed: Sequence[str]) -> int:
    """Sets limits of the queue by the names of their fields in `meta`, and removes others."""
    pairs = [str(item) for pair in limits.items() for item in pair]
    packed = {"set": msgpack.packb(pairs, use_bin_type=False), "removed": msgpack.packb([*removed], use_bin_type=False)}
    return int(handle.run("set_limits", packed))


class GroupChange(NamedTuple):
    """What a group gets of its own, and what it has no longer; see core/lua/lib/groups.lua."""

    group: str
    set: Mapping[str, int | bool]
    removed: Sequence[str] = ()


def change_groups(handle: QueueHandle, changes: Sequence[GroupChange]) -> None:
    """Changes what groups have of their own."""
    packed = msgpack.packb([change._asdict() for change in changes], use_bin_type=False)
    handle.run_once("change_groups", {"changes": packed})


def remove(handle: QueueHandle, job_id: str, keys: JobKeys, *, with_children: bool, limit: int) -> JobReply:
    """Removes a job, and its children if wanted, `limit` jobs at most."""
    args = {"job_id": job_id, "with_children": int(with_children), "limit": limit}
    return _job_reply(handle.run_once("remove", args, **keys._asdict()))


class ManageReply(NamedTuple):
    """`first`: number of the first row that was not processed. `outcomes`: of the rows before it."""

    first: int
    outcomes: list[str]


def manage(
    handle: QueueHandle, receipt: str, number: str, packed: bytes, *, first: int, touched: Sequence[str]
) -> ManageReply:
    """Changes the jobs of a packed chunk from its row `first` on. `receipt` and `number` identify the call; `touched`:
    other keys that it may touch.
    """
    args = {"number": number, "from": first, "chunk": packed, "ttl_ms": RECEIPT_TTL_MS, **NO_WORKER}
    reached, outcomes = handle.run("manage", args, receipt=receipt, touched=[*touched])
    return ManageReply(int(reached), [outcome.decode() for outcome in outcomes])


def check_managed(handle: QueueHandle, stage: str, number: int) -> tuple[str, str, str] | None:
    """Finds the first job of a staged chunk that can't be changed: its id, the action, and why."""
    reply = handle.run("check_managed", {"number": number}, stage=stage)
    if not reply:
        return None
    job_id, action, reason = (part.decode() for part in reply)
    return job_id, action.replace("_", "-"), reason


def remove_child_dependency(handle: QueueHandle, job_id: str) -> JobReply:
    """Removes a job from the children of its parent; see the script for the replies."""
    return _job_reply(handle.run_once("remove_child_dependency", {}, job=handle.keys.job(job_id)))


class ChildrenReply(NamedTuple):
    """The position to go on from, b"" at the end, and the number of removed jobs; None: the job does not exist."""

    position: bytes
    removed: int | None


def remove_unprocessed_children(handle: QueueHandle, job_id: str, position: bytes, *, limit: int) -> ChildrenReply:
    """Removes descendants of a job that have not ended and are not locked, `limit` jobs at most."""
    args = {"position": position, "limit": limit}
    reply = handle.run_once("remove_unprocessed_children", args, job=handle.keys.job(job_id))
    return ChildrenReply(b"", None) if reply == [b"missing"] else ChildrenReply(_position(reply[0]), int(reply[1]))


def remove_orphans(handle: QueueHandle, job_ids: Sequence[bytes], states: Sequence[str], *, window: int) -> int:
    """Of the given jobs, removes each that is in no state, given the keys of all states; returns their number.

    window: number of entries that are searched at both ends of each list.
    """
    return int(handle.run_once("remove_orphans", {"ids": job_ids, "window": window}, states=list(states)))


def cancel(handle: QueueHandle, job_ids: Sequence[str | bytes], reason: bytes, *, ttl_ms: int) -> list[str]:
    """Requests that the slots that hold some jobs cancel them. Returns done, missing, unlocked or foreign for each."""
    answers: list[bytes] = handle.run("cancel", {"ids": job_ids, "reason": reason, "ttl_ms": ttl_ms})
    return [answer.decode() for answer in answers]


def _sweep_args(sweep: Sweep) -> dict[str, str | bytes | int]:
    return {"kind": sweep.store.kind, "position": sweep.position, "size": sweep.size}


def _position(reply: bytes | int) -> bytes:
    return reply if isinstance(reply, bytes) else b"%d" % reply


class CleanReply(NamedTuple):
    """The position to go on from, b"" at the end, and the ids of the removed jobs."""

    position: bytes
    removed: list[str]


def clean(
    handle: QueueHandle, sweep: Sweep, *, state: str, before: int, finished: bool, removed: int, limit: int
) -> CleanReply:
    """Removes jobs of a state that ended, started or were added by `before`, ms since 1970; see clean.lua.

    finished: whether the state is for finished jobs. removed: number of jobs that earlier calls have removed.
    """
    args = {"before": before, "finished": int(finished), "state": state, "removed": removed, "limit": limit}
    key = handle.keys[sweep.store.key]
    position, ids = handle.run_once("clean", {**args, **_sweep_args(sweep)}, state=key)
    return CleanReply(_position(position), [job_id.decode("utf-8", "replace") for job_id in ids])


class DrainReply(NamedTuple):
    """The position to go on from, b"" at the end, and the number of removed jobs."""

    position: bytes
    removed: int


def drain(handle: QueueHandle, sweep: Sweep, *, limit: int) -> DrainReply:
    """Removes jobs of a state that wait for a worker or are delayed."""
    args = {"limit": limit, **_sweep_args(sweep)}
    position, removed = handle.run_once("drain", args, state=handle.keys[sweep.store.key])
    return DrainReply(_position(position), int(removed))


class ObliterateReply(NamedTuple):
    """State: open (call again), done, or active. active: number of active jobs."""

    state: str
    active: int = 0


def obliterate(handle: QueueHandle, position: int, *, limit: int, force: bool) -> ObliterateReply:
    """Pauses a queue and removes its next jobs, finally its other keys; with active jobs only by force.

    position: of WRITES_SIZE writes, counted from the latest, whose kept ids the call removes before that.
    """
    args: dict[str, str | int] = {"limit": limit, "move": MOVE_SIZE, "writes": WRITES_SIZE, "position": position}
    args["kept_ids"] = handle.keys.kept_ids("")
    state, *active = handle.run_once("obliterate", {**args, "force": int(force)})
    return ObliterateReply(state.decode(), *map(int, active))
