"""The verbs of writers: one function for each script, with its name; see core/queue/handle/verbs.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from spark_bull.core.model.limits import NO_WORKER
from spark_bull.core.queue.handle.admission import LengthLimit, Refusal, refusal_of
from spark_bull.core.queue.handle.handle import MOVE_SIZE, RECEIPT_TTL_MS, REMOVE_SIZE, WRITES_SIZE, QueueHandle

#: TTL of the record of a finished write.
RECORD_TTL_MS: Final = 30 * 86_400_000


class FlowsReply(NamedTuple):
    """As AddReply. `winners`: numbers of deduplicated jobs, and ids of the jobs that exist in their place. `rejected`:
    numbers of jobs whose flow was not added, and why.
    """

    first: int
    added: int
    duplicates: int
    deduplicated: int
    winners: Sequence[tuple[int, bytes]]
    rejected: Sequence[tuple[int, bytes]]
    dropped: int = 0


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
    return refusal_of(reply) or AddReply(*reply)


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
    return refusal_of(reply) or FlowsReply(*reply)


#: The state of a write after a step: open, finished, broken (staged rows are gone), unknown (no such write); before the
#: first row behind another write, replacing (the queue has to be emptied) and opening (the callback has to be added);
#: full (no room), closing (the callback may start), and aborted.
WriteState: TypeAlias = Literal[
    "open", "finished", "broken", "unknown", "behind", "replacing", "opening", "full", "closing", "aborted"
]


class CommitReply(NamedTuple):
    """State of a write, number of its rows processed, and more about two states. `behind`: id of a write that has to be
    committed before it; `full`: length of the queue.
    """

    state: WriteState
    position: int
    detail: str = ""


def commit(
    handle: QueueHandle, write_id: str, position: int, verb: str = "commit", touched: Sequence[str] = ()
) -> CommitReply:
    """Adds or changes the next staged jobs of a registered write, at most one chunk; see core/lua/lib/writes.lua.

    verb: commit, commit_flows, commit_graph, commit_schedules, or commit_managed for a write that changes jobs.
    touched: other keys that it may touch.
    """
    state, reached, *detail = handle.run(
        verb,
        {"write_id": write_id, "position": position, "record_ttl_ms": RECORD_TTL_MS, **NO_WORKER},
        write=handle.keys.write(write_id),
        manifest=handle.keys.manifest(write_id),
        outcomes=handle.keys.outcomes(write_id),
        kept_ids=handle.keys.kept_ids(write_id),
        touched=[*touched],
    )
    return CommitReply(state.decode(), int(reached), *(text.decode() for text in detail))


def empty(handle: QueueHandle, write_id: str, position: int) -> bool:
    """Removes the next jobs that a registered write replaces, after the ids that earlier writes have kept; position: as
    in `obliterate`. Returns whether to call again.
    """
    args: dict[str, str | int] = {"limit": REMOVE_SIZE, "move": MOVE_SIZE, "writes": WRITES_SIZE, "position": position}
    args["kept_ids"] = handle.keys.kept_ids("")
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
