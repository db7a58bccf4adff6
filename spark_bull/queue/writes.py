"""The exactly-once write: stage chunks, register the write, roll it forward.

No worker sees staged chunks. Once a write is registered, any process can commit it: this one, the next write,
`recover()`. Several at once are safe: each step names the position that it expects, and changes nothing at another one.

A write with the field `replace` = 1 empties its queue before it adds its first job, and then sets the field `emptied`.
A write with the field `callback` adds its callback before its first job, and lets it start after the last one; the
field `callbackState` is `open`, then `closed`. The chunks of a write with the field `flows` have flows; the field names
the further queues of their children. Those of a write with the field `mode` = schedule have schedules, those of one
with `mode` = manage change jobs: the field `moves` names the further queues that jobs are moved to, and with the field
`outcomes` it keeps what became of each. A write with the field `maxLength` and `whenFull` = fail is registered only if
all of its jobs fit; with wait and drop, each step adds those that fit. With the field `keepsIds`, each step keeps the
ids of its jobs.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypedDict

import msgpack

from spark_bull.dialects.registry import DIALECTS
from spark_bull.errors import SparkBullError, StagedDataLost
from spark_bull.keys import QueueKeys
from spark_bull.model import Changed, WriteRecord
from spark_bull.queue import verbs
from spark_bull.queue.callbacks import Callback, callback_of, close_callback, open_callback
from spark_bull.queue.changes import touched_by_moves
from spark_bull.queue.flows import touched_keys
from spark_bull.queue.handle import QueueHandle
from spark_bull.queue.room import LengthLimit, RoomWait, intake_closed, queue_full
from spark_bull.store.connection import Connection

log = logging.getLogger("spark_bull")

#: TTL of the watermark of a query or application after its last write.
WATERMARK_TTL_MS: Final = 400 * 86_400_000

#: The states that count for the length of a queue.
_WAITING: Final = frozenset({"wait", "paused", "prioritized", "delayed", "waiting-children"})
#: Calls of a write whose outcomes are read at once.
_OUTCOMES_PER_CALL: Final = 20

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class StagedPart:
    """The chunks that one attempt of a task has staged for one queue."""

    stage: str
    chunks: int
    rows: int


@dataclass(frozen=True)
class QueuePlan:
    """The part of a write for one queue; its staged parts in the order of the rows."""

    handle: QueueHandle
    parts: Sequence[StagedPart]
    fields: Mapping[str, str | int]


@dataclass(frozen=True)
class Identity:
    """Identifies a write when it is repeated: application (or query) and version."""

    app_id: str
    version: int


def stage_chunk(handle: QueueHandle, stage: str, number: int, packed: bytes, ttl_ms: int) -> None:
    """Stages a chunk. Raises SparkBullError when the write of the stage key is registered."""
    args = {"number": number, "chunk": packed, "ttl_ms": ttl_ms}
    if not handle.connection.script("write/stage", {"stage": stage}, args):
        raise SparkBullError(
            f"expected the write of the stage key {stage} not to be registered yet, but it is: "
            "this attempt of the task is too late, and its chunks are not needed"
        )


def discard(connection: Connection, keys: QueueKeys, write_id: str, stages: Sequence[str]) -> int:
    """Deletes what a write has staged for a queue, unless it is registered; returns the number of stage keys."""
    return int(connection.script("write/discard", {"write": keys.write(write_id), "stages": list(stages)}))


def is_written(handle: QueueHandle, identity: Identity) -> bool:
    """Whether a write of this identity, or of a later version, is registered."""
    watermark = handle.connection.call("GET", handle.keys.watermark(identity.app_id))
    return watermark is not None and int(watermark) >= identity.version


def register(write_id: str, plans: Sequence[QueuePlan], identity: Identity | None) -> bool:
    """Registers a write for all of its queues or none; False when it was written before.

    Raises StagedDataLost when staged chunks are gone, IntakeClosed for a queue that accepts no jobs, and QueueFull if
    `whenFull` is fail; then nothing is visible.
    """
    if not plans:
        return True
    entries = [_entry(write_id, plan, identity) for plan in plans]
    touched = [key for entry in entries for key in (entry["write"], entry["manifest"], entry["intake_closed"]) if key]
    touched += [key for entry in entries if entry["limit"] for key in entry["limit"]["lists"] + entry["limit"]["zsets"]]
    touched += [part.stage for plan in plans for part in plan.parts]
    answer = plans[0].handle.connection.script(
        "write/register",
        {"touched": touched},
        {
            "plan": msgpack.packb(entries, use_bin_type=False),
            "version": identity.version if identity else 0,
            "watermark_ttl_ms": WATERMARK_TTL_MS,
        },
    )
    if answer[0] == b"lost":
        raise StagedDataLost(
            f"expected the staged chunks of write {write_id} in Redis, but {answer[1].decode()} "
            "expired, was evicted or flushed: nothing was written. Raise `stageTtlMs` above the "
            "duration of the job, set maxmemory-policy noeviction, and run again"
        )
    if answer[0] == b"closed":
        raise intake_closed(plans[answer[1] - 1].handle.keys.queue)
    if answer[0] == b"full":
        plan = plans[answer[1] - 1]
        max_length, jobs = int(plan.fields["maxLength"]), sum(part.rows for part in plan.parts)
        raise queue_full(plan.handle.keys.queue, answer[2], max_length, jobs, "nothing of this write was added")
    return bool(answer[0] == b"registered")


class _Stage(TypedDict):
    """A stage key, and the number of its chunks."""

    key: str
    chunks: int


class _Limit(TypedDict):
    """The maximum length of a queue for a write of `jobs`, and the keys that its length is read from."""

    max_length: int
    jobs: int
    replaces: bool
    lists: list[str]
    zsets: list[str]
    writes: str


class _Entry(TypedDict):
    """One queue of a write, as the script `register` expects it. `fields`: names and values of the write's hash.
    `limit`: None if the queue has no maximum length, or is filled step by step.
    """

    id: str
    write: str
    manifest: str
    open: str
    watermark: str
    stages: list[_Stage]
    fields: list[str | int]
    intake_closed: str
    limit: _Limit | None


def _limit(plan: QueuePlan, jobs: int) -> _Limit | None:
    """The maximum length for a write that is registered only if all of its jobs fit."""
    if plan.fields.get("whenFull") != "fail":
        return None
    keys, states = plan.handle.keys, plan.handle.dialect.states
    waiting = [state for name, state in states.items() if name in _WAITING]
    return {
        "max_length": int(plan.fields["maxLength"]),
        "jobs": jobs,
        "replaces": bool(plan.fields.get("replace")),
        "lists": [keys[state.key] for state in waiting if state.kind == "list"],
        "zsets": [keys[state.key] for state in waiting if state.kind == "zset"],
        "writes": keys.writes,
    }


def _entry(write_id: str, plan: QueuePlan, identity: Identity | None) -> _Entry:
    keys = plan.handle.keys
    fields: dict[str, str | int] = {
        "delivery": "exactly-once",
        "dialect": plan.handle.dialect.name,
        "jobs": sum(part.rows for part in plan.parts),
        **plan.fields,
    }
    if identity:
        fields |= {"appId": identity.app_id, "version": identity.version}
    adds = fields.get("mode") != "manage"
    return {
        "id": write_id,
        "write": keys.write(write_id),
        "manifest": keys.manifest(write_id),
        "open": keys["open_writes"],
        "watermark": keys.watermark(identity.app_id) if identity else "",
        "stages": [{"key": part.stage, "chunks": part.chunks} for part in plan.parts],
        "fields": [item for field in fields.items() for item in field],
        # The jobs of other writes are in the queue already, and changes add none.
        "intake_closed": keys["intake_closed"] if fields["delivery"] == "exactly-once" and adds else "",
        "limit": _limit(plan, int(fields["jobs"])),
    }


def roll_forward(
    handle: QueueHandle, write_id: str, progress: Progress | None = None, *, waits: bool = True
) -> WriteRecord:
    """Commits the rest of a registered write; calls progress(rows processed, rows in total).

    waits: whether to wait for room in a full queue (`whenFull=wait`); otherwise the write stays open. Older writes are
    committed first if one of the two replaces the queue. Raises StagedDataLost when registered chunks are gone from
    Redis.
    """
    position = 0
    names = ("jobs", "dialect", "flows", "mode", "moves", "maxLength")
    jobs, dialect, flows, mode, moves, max_length = handle.connection.call("HMGET", handle.keys.write(write_id), *names)
    verb, touched = _committing(handle, flows, mode, moves)
    total = int(jobs or 0)
    wait = RoomWait(handle.keys.queue, LengthLimit(int(max_length or 0), "wait"))
    if dialect:
        # The dialect that its chunks are encoded for, which can differ from that of the handle.
        handle = replace(handle, dialect=DIALECTS[dialect.decode()])
    while True:
        reply = verbs.commit(handle, write_id, position, verb, touched)
        if reply.state == "unknown":
            raise StagedDataLost(_lost_write(handle.keys.queue, write_id, position, total))
        position = reply.position
        if reply.state == "behind":
            if not _finish_first(handle, reply.detail, waits=waits):
                break
            continue
        if reply.state == "full":
            if not waits:
                break
            wait.pause(int(reply.detail), position, total)
            continue
        wait.reset()
        if progress:
            progress(position, total)
        if reply.state == "replacing":
            _empty(handle, write_id)
        elif reply.state == "opening":
            open_callback(handle, _callback(handle, write_id), handle.keys.write(write_id))
        elif reply.state == "closing":
            close_callback(handle, _callback(handle, write_id), handle.keys.write(write_id))
        elif reply.state == "broken":
            raise StagedDataLost(
                f"write {write_id} to queue {handle.keys.queue}: chunks were gone from Redis after "
                f"{position:,} of {total:,} rows were committed; was it flushed, or is its "
                "maxmemory-policy other than noeviction?"
            )
        elif reply.state != "open":
            break
    record = read_record(handle, write_id)
    if record is None:
        raise StagedDataLost(_lost_write(handle.keys.queue, write_id, position, total))
    return record


def _committing(
    handle: QueueHandle, flows: bytes | None, mode: bytes | None, moves: bytes | None
) -> tuple[str, list[str]]:
    """The verb that commits a write with these fields, and the further keys that it may touch."""
    if mode == b"manage":
        return "commit_managed", touched_by_moves(handle, json.loads(moves or b"[]"))
    if mode == b"schedule":
        return "commit_schedules", []
    if flows is not None:
        return "commit_flows", touched_keys(handle, json.loads(flows))
    return "commit", []


def _lost_write(queue: str, write_id: str, position: int, total: int) -> str:
    what = (
        f"expected write {write_id} of queue {queue} in Redis, found none, although it was registered: it was lost in "
        "a fail-over or a flush"
    )
    if position == 0:
        return f"{what}. None of its rows was committed: run the write again"
    return (
        f"{what} after {position:,} of {total:,} rows were committed. These may be lost, too, and the others were not "
        "committed: check what the queue has before you run the write again (jobs with a `jobId` are not added twice)"
    )


def _callback(handle: QueueHandle, write_id: str) -> Callback:
    return callback_of(handle.connection.call("HGET", handle.keys.write(write_id), "callback"))


def _empty(handle: QueueHandle, write_id: str) -> None:
    """Removes the jobs that a write replaces, unless it has added jobs."""
    while verbs.empty(handle, write_id):
        pass


def _finish_first(handle: QueueHandle, write_id: str, *, waits: bool) -> bool:
    """Finishes an older write; returns False if that has to wait for room. A broken one is closed."""
    try:
        return roll_forward(handle, write_id, waits=waits).state != "open"
    except StagedDataLost as error:
        log.warning("continuing without the lost jobs of an older write: %s", error)
        return True


def recover(handle: QueueHandle) -> list[WriteRecord]:
    """Rolls all registered, unfinished writes of a queue forward, in the order of registration.

    Returns the records of those that are finished: others have to wait for room.
    """
    return [record for record in advance_all(handle) if record.state != "open"]


def advance_all(handle: QueueHandle) -> list[WriteRecord]:
    """As `recover`, but returns also the records of those that have to wait for room; their state is `open`."""
    return [roll_forward(handle, write_id, waits=False) for write_id in open_writes(handle)]


def open_writes(handle: QueueHandle) -> list[str]:
    """Ids of registered, unfinished writes, oldest first."""
    ids = handle.connection.call("ZRANGE", handle.keys["open_writes"], 0, -1)
    return [write_id.decode() for write_id in ids]


def records(handle: QueueHandle) -> list[WriteRecord]:
    """Records of the queue's writes, the oldest first, unfinished ones last."""
    finished = handle.connection.call("ZRANGE", handle.keys["finished_writes"], 0, -1)
    ids = [write_id.decode() for write_id in finished] + open_writes(handle)
    return _read_records(handle, ids)


def read_record(handle: QueueHandle, write_id: str) -> WriteRecord | None:
    """The record of one write, or None when there is none or it has expired."""
    return next(iter(_read_records(handle, [write_id])), None)


def _read_records(handle: QueueHandle, write_ids: Iterable[str]) -> list[WriteRecord]:
    ids = list(dict.fromkeys(write_ids))
    replies = handle.connection.pipeline([("HGETALL", handle.keys.write(i)) for i in ids])
    return [_record(handle, i, fields) for i, fields in zip(ids, replies, strict=True) if fields]


def _record(handle: QueueHandle, write_id: str, raw: Mapping[bytes, bytes]) -> WriteRecord:
    fields = {name.decode(): value.decode() for name, value in raw.items()}

    def number(name: str) -> int | None:
        return int(fields[name]) if name in fields else None

    return WriteRecord(
        id=write_id,
        queue=handle.keys.queue,
        state=fields["state"],
        delivery=fields["delivery"],
        jobs=number("jobs") or 0,
        done=number("position") or 0,
        added=number("added") or 0,
        duplicates=number("duplicates") or 0,
        deduplicated=number("deduplicated") or 0,
        rejected=number("rejected") or 0,
        dropped=number("dropped") or 0,
        replicas=number("replicas"),
        started_on=number("startedOn"),
        finished_on=number("finishedOn"),
        app_id=fields.get("appId"),
        version=number("version"),
        changed=number("changed") or 0,
        missing=number("missing") or 0,
        locked=number("locked") or 0,
        wrong_state=number("wrongState") or 0,
    )


def read_outcomes(handle: QueueHandle, write_id: str) -> Iterator[Changed]:
    """What became of each change of a write that keeps this, in order; nothing when it has expired."""
    key, start = handle.keys.outcomes(write_id), 0
    while packed := handle.connection.call("LRANGE", key, start, start + _OUTCOMES_PER_CALL - 1):
        for part in packed:
            ids, actions, outcomes = msgpack.unpackb(part, raw=False, unicode_errors="replace")
            for job_id, action, outcome in zip(ids, actions, outcomes, strict=True):
                yield Changed(job_id, action.replace("_", "-"), outcome)
        start += len(packed)
