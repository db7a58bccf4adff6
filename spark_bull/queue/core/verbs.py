"""The verbs of a dialect: one function for each script in `lua/<dialect>/` and `lua/job/`, with the same name.

The contract at the head of the script says what it does; the functions give it types. Every verb handles at most one
chunk, and has the same effect when its call is repeated after a lost reply: by its effect, or by a stored reply (a
receipt), in which case the caller names the call, or `run_once` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, TypedDict

import msgpack

from spark_bull.dialects.base import NextJob, StateKey
from spark_bull.model.group_limits import GroupLimits
from spark_bull.model.guards import Guard
from spark_bull.model.outcomes import Outcomes
from spark_bull.queue.core.claim_settings import ClaimSettings
from spark_bull.queue.core.discovery import DiscoverResult, DiscoverSettings, Horizon, Remaining
from spark_bull.queue.core.handle import CHUNK_SIZE, MOVE_SIZE, RECEIPT_TTL_MS, REMOVE_SIZE, QueueHandle
from spark_bull.queue.core.length_limit import LengthLimit
from spark_bull.queue.core.other_queue import touched_keys

#: TTL of the record of a finished write.
RECORD_TTL_MS: Final = 30 * 86_400_000
#: TTL of a ledger of results after the last call of its query.
RESULTS_TTL_MS: Final = 7 * 86_400_000
#: TTL of a ledger of claims after the last claim or batch of its query.
CLAIMS_TTL_MS: Final = 7 * 86_400_000
#: TTL of the lease of a caller: jobs of one without a lease are removed as long as they wait.
CALL_LEASE_MS: Final = 60_000
#: How long the parents of a caller outlive its results until the jobs that it has left are removed.
_SWEPT_WITHIN_MS: Final = 86_400_000


#: The settings of a worker for jobs that end without one: no limits of groups, and no metrics.
_NO_WORKER: Final = {"group": "", "max_metrics": 0}


class JobKeys(NamedTuple):
    """The keys of one job."""

    job: str
    lock: str


# Dispatch


class Refusal(NamedTuple):
    """Nothing was added: the queue accepts no jobs (`closed`), or is `full`. length: that of a full queue."""

    reason: str
    length: int = 0


class FlowsReply(NamedTuple):
    """As AddReply. `kept`: numbers of deduplicated jobs, and ids of the jobs that are kept in their place. `rejected`:
    numbers of jobs whose flow was not added, and why.
    """

    first: int
    added: int
    duplicates: int
    deduplicated: int
    kept: Sequence[tuple[int, bytes]]
    rejected: Sequence[tuple[int, bytes]]
    dropped: int = 0


class AddReply(NamedTuple):
    """`first`: number of the first row that was not processed. `ids`: those of new and known jobs, if wanted.
    `rejected`: rows that were not added as children, counted from 1, and why. `dropped`: rows that had no room.
    """

    first: int
    added: int
    duplicates: int
    deduplicated: int
    ids: list[bytes | int]
    rejected: Sequence[tuple[int, bytes]] = ()
    dropped: int = 0


def _refusal(reply: Sequence[Any]) -> Refusal | None:
    return Refusal(reply[0].decode(), *reply[1:]) if isinstance(reply[0], bytes) else None


def _limit_args(handle: QueueHandle, limit: LengthLimit | None) -> dict[str, str | int]:
    max_length, when_full = limit or ("", "")
    return {
        "max_length": max_length,
        "when_full": when_full,
        "writes": handle.keys.writes,
        "kept_ids_ttl_ms": RECORD_TTL_MS,
    }


def _kept_ids(handle: QueueHandle, write_id: str | None) -> dict[str, str | None]:
    return {"kept_ids": None if write_id is None else handle.keys.kept_ids(write_id)}


def add(
    handle: QueueHandle,
    receipt: str,
    number: int | str,
    packed: bytes,
    *,
    first: int,
    want_ids: bool,
    limit: LengthLimit | None = None,
    respects_intake: bool = True,
    write_id: str | None = None,
) -> AddReply | Refusal:
    """Adds the jobs of a packed chunk from its row `first` on. `receipt` and `number` identify the call.

    limit: maximum length of the queue. respects_intake: whether a closed queue refuses the jobs. write_id: the write
    that keeps the ids.
    """
    args = {"number": number, "from": first, "chunk": packed, "want_ids": int(want_ids), "ttl_ms": RECEIPT_TTL_MS}
    args |= _limit_args(handle, limit)
    keys = _kept_ids(handle, write_id)
    if not respects_intake:
        keys["intake_closed"] = None
    reply = handle.run("add", args, receipt=receipt, **keys)
    return _refusal(reply) or AddReply(*reply)


def add_flows(
    handle: QueueHandle,
    receipt: str,
    number: int | str,
    packed: bytes,
    touched: Sequence[str],
    write_id: str | None = None,
) -> FlowsReply | Refusal:
    """Adds the flows of a packed chunk. `touched`: other keys that it may touch. write_id: as in `add`."""
    args = {"number": number, "from": 1, "chunk": packed, "want_ids": 1, "ttl_ms": RECEIPT_TTL_MS}
    args |= _limit_args(handle, None)
    reply = handle.run("add_flows", args, receipt=receipt, touched=[*touched], **_kept_ids(handle, write_id))
    return _refusal(reply) or FlowsReply(*reply)


class CommitReply(NamedTuple):
    """State of a write, number of its rows processed, and more about the state `behind`: id of a write that has to be
    committed before it; `full`: length of the queue.
    """

    state: str
    position: int
    detail: str = ""


def commit(
    handle: QueueHandle, write_id: str, position: int, verb: str = "commit", touched: Sequence[str] = ()
) -> CommitReply:
    """Adds or changes the next staged jobs of a registered write, at most one chunk; see lua/lib/commit_once.lua.

    verb: commit, commit_flows, commit_graph, commit_schedules, or commit_managed for a write that changes jobs.
    touched: other keys that it may touch.
    """
    state, reached, *detail = handle.run(
        verb,
        {"write_id": write_id, "position": position, "record_ttl_ms": RECORD_TTL_MS, **_NO_WORKER},
        write=handle.keys.write(write_id),
        manifest=handle.keys.manifest(write_id),
        outcomes=handle.keys.outcomes(write_id),
        kept_ids=handle.keys.kept_ids(write_id),
        touched=[*touched],
    )
    return CommitReply(state.decode(), int(reached), *(text.decode() for text in detail))


def empty(handle: QueueHandle, write_id: str) -> bool:
    """Removes the next jobs that a registered write replaces. Returns whether to call again."""
    args = {"limit": REMOVE_SIZE, "move": MOVE_SIZE}
    return bool(handle.run_once("empty", args, write=handle.keys.write(write_id)) == b"open")


def open_callback(
    handle: QueueHandle, job_id: str, packed: bytes, pending: Sequence[str], *, write: str | None
) -> None:
    """Adds the callback of a write, a packed chunk with one job, unless it was added before. write: its key, if any."""
    args = {"job_id": job_id, "chunk": packed, "pending": pending, "ttl_ms": RECORD_TTL_MS}
    handle.run("open_callback", args, write=write, **_callback_keys(handle, job_id))


def close_callback(handle: QueueHandle, job_id: str, member: str, *, write: str) -> None:
    """Removes a member of the dependencies of a write's callback that stands for jobs."""
    handle.run("close_callback", {"job_id": job_id, "pending": member}, write=write, **_callback_keys(handle, job_id))


def drop_callback(handle: QueueHandle, job_id: str, pending: Sequence[str]) -> bool:
    """Removes the callback of a failed write, unless it has children. Returns whether there is none."""
    args = {"job_id": job_id, "pending": pending}
    return bool(handle.run("drop_callback", args, **_callback_keys(handle, job_id)))


def _callback_keys(handle: QueueHandle, job_id: str) -> dict[str, str]:
    keys = handle.keys
    return {
        "callback": keys.callback(job_id),
        "job": keys.job(job_id),
        "children": keys.children(job_id),
        "children_values": keys.children_values(job_id),
        "children_failures": keys.children_failures(job_id),
    }


# Calls


class AddedCalls(NamedTuple):
    """The number of jobs that were added, and the rows of the calls that have ended before, from 0."""

    added: int
    ended: list[int]


def add_calls(handle: QueueHandle, caller: str, packed: bytes, *, keep_ms: int, keeps: bool) -> AddedCalls | None:
    """Adds the calls of a packed chunk that are neither pending nor ended. None: the queue accepts no jobs.

    keeps: whether their jobs are kept when they end, until they are gathered.
    """
    args = {
        "caller": caller,
        "chunk": packed,
        "pending": handle.keys.never_ends,
        "keep_ms": keep_ms,
        "keeps": int(keeps),
        "lease_ms": CALL_LEASE_MS,
        "open_ms": keep_ms + _SWEPT_WITHIN_MS,
    }
    reply = handle.run("add_calls", args)
    if reply[0] == b"closed":
        return None
    return AddedCalls(reply[0], [row - 1 for row in reply[1]])


def hold_calls(handle: QueueHandle, caller: str, parents: Sequence[str], *, keep_ms: int, ended: bool) -> int:
    """Renews the lease of a caller, or gives it up, and keeps its results; returns the time of Redis, ms since 1970.

    parents: the keys of its parents. ended: all its calls have ended; another caller of its name may still need them.
    """
    args = {
        "caller": caller,
        "keep_ms": max(keep_ms, CALL_LEASE_MS) if ended else keep_ms + _SWEPT_WITHIN_MS,
        "lease_ms": CALL_LEASE_MS,
        "ended": int(ended),
        "parents": parents,
    }
    return int(handle.run("hold_calls", args))


def end_calls(handle: QueueHandle, job_ids: Sequence[str], parent_ids: Sequence[str], reason: str) -> int:
    """Ends pending calls with a reason, and removes their jobs; returns how many of the first calls are done."""
    return int(handle.run("end_calls", {"calls": _calls(job_ids, parent_ids), "reason": reason}))


def gather_calls(handle: QueueHandle, job_ids: Sequence[str | bytes], parent_ids: Sequence[str]) -> None:
    """Moves the outcomes and details of calls that have ended to their parents, and removes their jobs."""
    handle.run("gather_calls", {"calls": _calls(job_ids, parent_ids)})


def _calls(job_ids: Sequence[str | bytes], parent_ids: Sequence[str]) -> bytes:
    packed: bytes = msgpack.packb([[*job_ids], [*parent_ids]], use_bin_type=False)
    return packed


class Swept(NamedTuple):
    """The position to go on from, b"" at the end; how many jobs were removed, and how many stay."""

    position: bytes
    removed: int
    stay: int


def sweep_calls(
    handle: QueueHandle, caller: str, parent: str, position: bytes, *, left: int, is_last: bool
) -> Swept | None:
    """Removes pending jobs of one parent of a caller whose lease has lapsed. None: it has not."""
    args = {
        "caller": caller,
        "position": position,
        "limit": REMOVE_SIZE,
        "left": left,
        "is_last": int(is_last),
        "lease_ms": CALL_LEASE_MS,
    }
    reply = handle.run("sweep_calls", args, parent=parent)
    return None if reply[0] == b"held" else Swept(*reply)


# Operators


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
    """What a group gets of its own, and what it has no longer; see lua/lib/group_record.lua."""

    group: str
    set: Mapping[str, int | bool]
    removed: Sequence[str] = ()


def change_groups(handle: QueueHandle, changes: Sequence[GroupChange]) -> bool:
    """Changes what groups have of their own. False: no worker has claimed by groups; nothing was changed."""
    packed = msgpack.packb([change._asdict() for change in changes], use_bin_type=False)
    return bool(handle.run_once("change_groups", {"changes": packed}))


def retry(handle: QueueHandle, job_id: str, keys: JobKeys, state: str, *, resets: bool) -> JobReply:
    """Moves a job of `state`, completed or failed, to the waiting ones. resets: whether its attempts count from 0."""
    args = {"job_id": job_id, "from": state, "resets": int(resets)}
    return _job_reply(handle.run_once("retry", args, **keys._asdict()))


def promote(handle: QueueHandle, job_id: str, keys: JobKeys) -> JobReply:
    """Moves a delayed job to the waiting ones."""
    return _job_reply(handle.run_once("promote", {"job_id": job_id}, **keys._asdict()))


def remove(handle: QueueHandle, job_id: str, keys: JobKeys, *, with_children: bool, limit: int) -> JobReply:
    """Removes a job, and its children if wanted, `limit` jobs at most."""
    args = {"job_id": job_id, "with_children": int(with_children), "limit": limit}
    return _job_reply(handle.run_once("remove", args, **keys._asdict()))


class ManageReply(NamedTuple):
    """`first`: number of the first row that was not processed. `outcomes`: those of the rows before it."""

    first: int
    outcomes: list[str]


def manage(
    handle: QueueHandle, receipt: str, number: str, packed: bytes, *, first: int, touched: Sequence[str]
) -> ManageReply:
    """Changes the jobs of a packed chunk from its row `first` on. `receipt` and `number` identify the call; `touched`:
    other keys that it may touch.
    """
    args = {"number": number, "from": first, "chunk": packed, "ttl_ms": RECEIPT_TTL_MS, **_NO_WORKER}
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
    """Removes those of some jobs that are in no state, given the keys of all states; returns their number.

    window: number of entries that are searched at both ends of each list.
    """
    return int(handle.run_once("remove_orphans", {"ids": job_ids, "window": window}, states=list(states)))


class Sweep(NamedTuple):
    """The part of a state that a call processes: it removes about `size` ids from a position, b"0" at the beginning."""

    store: StateKey
    position: bytes
    size: int


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

    finished: whether the state is that of finished jobs. removed: number of jobs that earlier calls have removed.
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


def obliterate(handle: QueueHandle, *, limit: int, force: bool) -> ObliterateReply:
    """Pauses a queue and removes its next jobs, finally its other keys; with active jobs only by force."""
    state, *active = handle.run_once("obliterate", {"limit": limit, "move": MOVE_SIZE, "force": int(force)})
    return ObliterateReply(state.decode(), *map(int, active))


# Workers and services


class WorkReply(TypedDict):
    """The reply of `work`, unpacked. Lua returns false for nothing; pairs are (job id, reason or type of its key).

    counted: numbers of jobs by what became of them, if the settings have a key for them.
    """

    ids: list[str]
    columns: dict[str, object] | Literal[False]
    damaged: list[tuple[str, str]]
    lost: list[tuple[str, str]] | Literal[False]
    limited_ms: int
    next_due: float | Literal[False]
    more: bool
    stop: bool
    paused: bool
    now: int
    counted: dict[str, int] | Literal[False]


def work(
    handle: QueueHandle,
    settings: ClaimSettings,
    limit: int,
    *,
    call: str,
    token: str,
    most_bytes: int,
    outcomes: Outcomes | None = None,
    held: bytes | str = b"",
    reader: str = "",
    with_jobs: bool = True,
) -> bytes:
    """Settles a chunk of claimed jobs and claims the next one; see `claim.work`. Returns a packed WorkReply.

    Outcomes with follow-ups have a script of their own, which does more.
    """
    limiter, settled = settings.limiter, outcomes.packable() if outcomes else {}
    args = {
        "call": call,
        "ttl_ms": RECEIPT_TTL_MS,
        "lock_token": token,
        "lock_ms": settings.lock_ms,
        "worker": settings.worker,
        "limit": limit,
        "most_bytes": most_bytes,
        "held": held,
        "limiter_max": limiter.max if limiter else "",
        "limiter_ms": limiter.duration if limiter else "",
        "limiter_groups": int(limiter is not None and limiter.group_key is not None),
        "limiter_delays": int(limiter is not None and not limiter.bounce_back and settings.group is None),
        "at_once": "" if settings.at_once is None else settings.at_once,
        "group": _packed(settings.group) if settings.group else "",
        "max_metrics": settings.max_metrics,
        "want_jobs": int(with_jobs),
        "outcomes": msgpack.packb(settled, use_bin_type=False) if settled else "",
        "ledger_ttl_ms": CLAIMS_TTL_MS,
    }
    reply: bytes = handle.run(
        "work_and_add" if "follow_ups" in settled else "work",
        args,
        receipt=handle.keys.receipt(settings.sender),
        control=settings.control or None,
        counters=settings.counters or None,
        ledger=handle.keys.claims(reader) if reader else None,
        ledger_end=handle.keys.claims_end(reader) if reader else None,
        touched=touched_keys(handle, [chunk["queue"] for chunk in settled.get("follow_ups", ())]),
    )
    return reply


@lru_cache(maxsize=128)
def _packed(limits: GroupLimits) -> bytes:
    packed: bytes = msgpack.packb(limits.given | {"path": limits.by.split(".")})
    return packed


def unpack_work(reply: bytes) -> WorkReply:
    """Unpacks a reply of `work`."""
    answer: WorkReply = msgpack.unpackb(reply, raw=False, strict_map_key=False, unicode_errors="replace")
    return answer


def claimed(handle: QueueHandle, job_ids: Sequence[str], fields: Sequence[str]) -> dict[str, object]:
    """Reads fields of claimed jobs again, as columns by name; see lua/lib/collapsed.lua."""
    ids = msgpack.packb(list(job_ids), use_bin_type=False)
    reply = handle.run("claimed", {"ids": ids, "fields": fields})
    columns: dict[str, object] = msgpack.unpackb(reply, raw=False, unicode_errors="replace")
    return columns


def extend(handle: QueueHandle, token: str, job_ids: Sequence[str], lock_ms: int) -> list[str]:
    """Extends the locks that hold `token`; returns the ids of jobs whose lock no longer holds it."""
    lost: list[bytes] = handle.run("extend", {"lock_token": token, "lock_ms": lock_ms, "ids": job_ids})
    return [job_id.decode() for job_id in lost]


def start(handle: QueueHandle, token: str, job_ids: Sequence[str]) -> list[str]:
    """Starts claimed jobs that can expire; returns the ids of those that have expired, or are locked by others."""
    kept: list[bytes] = handle.run("start", {"lock_token": token, "ids": job_ids})
    return [job_id.decode() for job_id in kept]


def relock(handle: QueueHandle, token: str, job_ids: Sequence[str], lock_ms: int) -> int:
    """Locks those jobs that are active without a lock, or whose lock of this token is shorter; returns their number."""
    return int(handle.run("relock", {"lock_token": token, "lock_ms": lock_ms, "ids": job_ids}))


class Promoted(NamedTuple):
    """How many delayed jobs were promoted, and when the next job is due or expires, ms since 1970; None: there is none.

    `now`: time of Redis, ms since 1970. `expired`: number of jobs that have expired.
    """

    moved: int
    next_due: int | None
    now: int
    expired: int = 0

    @property
    def more(self) -> bool:
        """Whether more jobs are due."""
        return self.next_due is not None and self.next_due <= self.now


def promote_due(handle: QueueHandle, limit: int = CHUNK_SIZE) -> Promoted:
    """Moves delayed jobs that are due to the waiting ones, `limit` at most; before that, fails expired jobs."""
    promoted, expired = _promote_due(handle, limit), 0
    if promoted.more and not promoted.moved:
        expired = expire(handle)
        promoted = _promote_due(handle, limit, after_expiry=True)
    return promoted._replace(expired=expired)


def expire(handle: QueueHandle) -> int:
    """Fails jobs that have expired, about a hundred; returns how many have failed."""
    return int(handle.run_once("expire", _NO_WORKER))


def _promote_due(handle: QueueHandle, limit: int, *, after_expiry: bool = False) -> Promoted:
    args = {"limit": limit, "after_expiry": int(after_expiry)}
    moved, next_due, now = handle.run_once("promote_due", args)
    return Promoted(int(moved), int(next_due) if next_due else None, int(now))


class AgeReply(NamedTuple):
    """`moved`: number of jobs whose priority was changed. `first`: the priority from which to go on, 0 at the end."""

    moved: int
    first: int


def age(handle: QueueHandle, priority: int, after_ms: int, *, first: int, limit: int = CHUNK_SIZE) -> AgeReply:
    """Gives jobs that have waited for `after_ms` a higher priority; examines about `limit` from priority `first` on."""
    args = {"priority": priority, "after_ms": after_ms, "first": first, "limit": limit}
    return AgeReply(*handle.run("age", args))


class GuardReply(NamedTuple):
    """What the call has done: paused the queue, resumed it, or neither. why: the reason of the pause, "" without one.

    is_moving: whether jobs are still to be moved: call again.
    """

    done: str
    why: str
    is_moving: bool


def guard(handle: QueueHandle, guard: Guard, *, now: int | None = None) -> GuardReply:
    """Looks at the queue for a guard; pauses or resumes it if that is due. now: ms since 1970; None: that of Redis."""
    condition = guard.condition
    args = {
        "measure": condition.measure,
        "operator": condition.operator,
        "threshold": condition.threshold,
        "window_ms": condition.window_ms,
        "interval_ms": condition.interval_ms,
        "condition": condition.text,
        "resume_after_ms": round(guard.resume_after_s * 1000),
        "min_jobs": guard.min_jobs,
        "finish_times": int(handle.dialect.has("finish-times")),
        "limit": MOVE_SIZE,
        "now": "" if now is None else now,
    }
    done, why, moving = handle.run_once("guard", args, guard=handle.keys.guard(guard.id))
    return GuardReply(done.decode(), why.decode(), bool(moving))


class RescueReply(NamedTuple):
    """The position to go on from, b"" at the end; ids of jobs that wait again, and of those that have failed."""

    position: bytes
    stalled: list[str]
    failed: list[str]


def rescue(handle: QueueHandle, position: bytes, *, max_stalled: int, check_ms: int, limit: int) -> RescueReply:
    """Moves stalled jobs back to the waiting ones, unless a check was made within `check_ms`; `limit` jobs at most."""
    args = {"position": position, "limit": limit, "max_stalled": max_stalled, "check_ms": check_ms}
    reached, stalled, failed = handle.run_once("rescue", args)
    return RescueReply(
        reached, [i.decode("utf-8", "replace") for i in stalled], [i.decode("utf-8", "replace") for i in failed]
    )


class StallReply(NamedTuple):
    """Ids of jobs that wait again, and of those that have failed."""

    returned: list[str]
    failed: list[str]


def stall(handle: QueueHandle, token: str, job_ids: Sequence[str], *, max_stalled: int, since: int) -> StallReply:
    """Returns running jobs whose locks hold `token` to the queue, as their process ends: they have stalled.

    since: when the process was already running, ms since 1970.
    """
    args = {"lock_token": token, "max_stalled": max_stalled, "since": since, "ids": job_ids}
    returned, failed = handle.run("stall", args)
    return StallReply([i.decode() for i in returned], [i.decode() for i in failed])


def advance(handle: QueueHandle, receipt: str, call: str, jobs: Sequence[NextJob], *, again: bool) -> list[str]:
    """Adds the next jobs of job schedulers; returns what became of each, see the dialects' advance.lua."""
    args = {
        "call": call,
        "ttl_ms": RECEIPT_TTL_MS,
        "again": int(again),
        "jobs": msgpack.packb(
            [{name: value for name, value in job.items() if value is not None} for job in jobs], use_bin_type=False
        ),
    }
    return [outcome.decode() for outcome in handle.run("advance", args, receipt=receipt)]


class ScheduleReply(NamedTuple):
    """`first`: number of the first row that was not processed. `due`: when the next jobs are due, ms. `rejected`: rows,
    counted from 1, of job schedulers whose next job can't be added, and the id of the job that prevents it.
    """

    first: int
    due: list[int]
    rejected: list[tuple[int, str]]


def schedule(handle: QueueHandle, packed: bytes, *, first: int) -> ScheduleReply | Refusal:
    """Creates or changes the job schedulers of a packed chunk from its row `first` on."""
    reply = handle.run_once("schedule", {"from": first, "chunk": packed})
    refusal = _refusal(reply)
    if refusal is not None:
        return refusal
    reached, due, rejected = reply
    return ScheduleReply(reached, due, [(row, job_id.decode()) for row, job_id in rejected])


def unschedule(handle: QueueHandle, members: Sequence[tuple[str, str]]) -> int:
    """Removes job schedulers and their delayed jobs; returns the number of job schedulers.

    members: of the ZSET of job schedulers, with the start of the ids of their jobs.
    """
    return int(handle.run_once("unschedule", {"members": [part for member in members for part in member]}))


# One job, while it is processed

#: Replies of `progress`, `log` and `update_data`: the job does not exist, its lock does not hold the token.
MISSING: Final = -1
LOCK_LOST: Final = -2


def progress(handle: QueueHandle, job_id: str, value: str, *, lock_token: str, of_checkpoint: bool) -> int:
    """Stores and publishes the progress of a job, JSON text. Returns 0, MISSING or LOCK_LOST.

    of_checkpoint: whether a checkpoint is added or removed.
    """
    args = {"job_id": job_id, "progress": value, "lock_token": lock_token, "of_checkpoint": int(of_checkpoint)}
    return int(handle.run("progress", args, job=handle.keys.job(job_id), lock=handle.keys.lock(job_id)))


def publish(handle: QueueHandle, fields: Sequence[str], *, max_events: int | None) -> str:
    """Adds an event, names and values of fields, to the stream of events; returns its id.

    max_events: about how many events the stream keeps; None: as many as the queue says.
    """
    entry_id: bytes = handle.run_once("publish", {"fields": fields, "max_events": max_events or ""})
    return entry_id.decode()


def log(handle: QueueHandle, job_id: str, row: str, *, keep: int) -> int:
    """Adds a row to a job's log, of which the last `keep` rows stay (0: all). Returns their number, or MISSING."""
    keys = {"job": handle.keys.job(job_id), "logs": handle.keys.logs(job_id)}
    return int(handle.run_once("log", {"row": row, "keep": keep}, **keys))


def update_data(handle: QueueHandle, job_id: str, data: str) -> int:
    """Replaces a job's payload, JSON text. Returns 0 or MISSING."""
    return int(handle.run("update_data", {"data": data}, job=handle.keys.job(job_id)))


def cancel(handle: QueueHandle, job_ids: Sequence[str | bytes], reason: bytes, *, ttl_ms: int) -> list[str]:
    """Requests that the slots that hold some jobs cancel them. Returns done, missing, unlocked or foreign for each."""
    answers: list[bytes] = handle.run("cancel", {"ids": job_ids, "reason": reason, "ttl_ms": ttl_ms})
    return [answer.decode() for answer in answers]


# Collect


def discover(
    handle: QueueHandle, ledger: dict[str, str], settings: DiscoverSettings, horizon: Horizon, *, most: int
) -> DiscoverResult:
    """Finds finished jobs within a horizon and appends them to a ledger; examines about `most` events and jobs.

    ledger: the keys of the ledger.
    """
    args: dict[str, Any] = {
        **settings._asdict(),
        "most": most,
        "ttl_ms": RESULTS_TTL_MS,
        **{f"until_{name}": bound for name, bound in horizon._asdict().items()},
    }
    for name in ("accept_recreated", "strict", "events_only"):
        args[name] = int(args[name])
    state, *rest = handle.run("discover", args, **ledger)
    if state == b"ok":
        end, remaining, *of_events = rest
        cursor, missed = of_events or (b"", 0)
        return DiscoverResult("ok", end, Remaining(remaining), missed, cursor=cursor.decode())
    if state == b"behind":
        return DiscoverResult("behind", rest[0])
    return DiscoverResult(state.decode(), owner=rest[0].decode() if state == b"taken" else "")


def archive(handle: QueueHandle, ledger: dict[str, str], position: int) -> int | None:
    """Deletes jobs of entries before a position of a ledger, and the entries. Returns the position of the first entry.

    None: there is no ledger.
    """
    start: int | None = handle.run("archive", {"position": position, "limit": REMOVE_SIZE}, **ledger)
    return start
