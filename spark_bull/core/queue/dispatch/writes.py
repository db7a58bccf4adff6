"""The exactly-once write: stage chunks, register the write, roll it forward.

No worker sees staged chunks. Once a write is registered, any process can commit it: this one, the next write,
`recover()`. Several at once are safe: each step names the position that it expects, and changes nothing at another one.

A write with the field `replace` = 1 empties its queue before it adds its first job, and then sets the field `emptied`.
A write with the field `callback` adds its callback before its first job, and lets it start after the last one; the
field `callbackState` is `open`, then `closed`. The chunks of a write with the field `flows` have flows; the field names
the other queues of their children. Those of a write with the field `mode` = schedule have schedulers, those of one
with `mode` = manage change jobs: the field `moves` names the other queues that jobs are moved to, and with the field
`outcomes` it keeps what became of each. A write with the field `maxLength` and `whenFull` = fail is registered only if
all of its jobs fit; with wait and drop, each step adds those that fit. With the field `keepsIds`, each step keeps the
ids of its jobs. The jobs of a write with the field `graph` depend on each other; see `graph`. A write with the field
`events` writes only those events.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import msgpack

from spark_bull.core.dialects.registry import DIALECTS
from spark_bull.core.errors import SparkBullError, StagedDataLost
from spark_bull.core.keys import QueueKeys
from spark_bull.core.model.jobs import Changed, WriteRecord
from spark_bull.core.options.table import ALL_EVENTS
from spark_bull.core.queue.dispatch import verbs
from spark_bull.core.queue.dispatch.callbacks import Callback, callback_of, close_callback, open_callback
from spark_bull.core.queue.dispatch.flows import TOUCHED
from spark_bull.core.queue.handle.admission import LengthLimit, RoomWait
from spark_bull.core.queue.handle.handle import QueueHandle, touched_keys
from spark_bull.core.store.connection import Connection, script_command
from spark_bull.core.store.steps import all_together, groups_of

log = logging.getLogger("spark_bull")

#: TTL of the watermark of a query or application after its last write.
WATERMARK_TTL_MS: Final = 400 * 86_400_000

#: Maximum number of keys that one script registers, prepares, opens or discards.
KEYS_PER_CALL: Final = 500
#: Chunks, and their bytes, that are staged in one round trip.
_CHUNKS_PER_TRIP: Final = 100
_BYTES_PER_TRIP: Final = 1 << 20
#: Maximum number of queues that one script opens.
_QUEUES_PER_CALL: Final = 100
#: Calls of a write whose outcomes are read at once.
_OUTCOMES_PER_CALL: Final = 20

Progress = Callable[[int, int], None]


@dataclass
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


class StagedChunk(NamedTuple):
    """A packed chunk, its stage key, and its number in it."""

    stage: str
    number: int
    packed: bytes


def stage_chunks(connection: Connection, chunks: Sequence[StagedChunk], ttl_ms: int) -> None:
    """Stages chunks, also of many queues, in shared round trips.

    Raises SparkBullError when the write of a stage key is registered.
    """
    for together in _in_trips(chunks):
        commands = [
            script_command(
                "write/stage", {"stage": one.stage}, {"number": one.number, "chunk": one.packed, "ttl_ms": ttl_ms}
            )
            for one in together
        ]
        replies = connection.pipeline(commands, "script `write/stage`")
        for one, is_staged in zip(together, replies, strict=True):
            if not is_staged:
                raise SparkBullError(
                    f"expected the write of the stage key {one.stage} not to be registered yet, but it is: "
                    "this attempt of the task is too late, and its chunks are not needed"
                )


def _in_trips(chunks: Sequence[StagedChunk]) -> Iterator[Sequence[StagedChunk]]:
    """Cuts chunks into those that share a round trip: by their number, and by their bytes if there are several."""
    trip: list[StagedChunk] = []
    size = 0
    for chunk in chunks:
        if trip and (len(trip) == _CHUNKS_PER_TRIP or size + len(chunk.packed) > _BYTES_PER_TRIP):
            yield trip
            trip, size = [], 0
        trip.append(chunk)
        size += len(chunk.packed)
    yield trip


def discard(connection: Connection, keys: QueueKeys, write_id: str, stages: Sequence[str]) -> int:
    """Deletes what a write has staged for a queue, unless it is registered; returns the number of stage keys."""
    write = keys.write(write_id)
    leader = connection.call("HGET", write, "leader")
    if leader and _decision(connection, leader.decode(), gives_up=True) == "registered":
        return 0
    names: dict[str, str | list[str]] = {
        "write": write,
        "manifest": keys.manifest(write_id),
        "open": keys["open_writes"],
    }
    portions = [stages[start : start + KEYS_PER_CALL] for start in range(0, len(stages), KEYS_PER_CALL)]
    return sum(
        int(connection.script("write/discard", names | {"stages": [*portion]}, {"write_id": write_id}))
        for portion in portions or [[]]
    )


def _decision(connection: Connection, leader: str, *, gives_up: bool = False) -> str:
    """What was decided on a prepared write: registered, given-up or undecided. leader: its key in the queue that leads.

    gives_up: whether to give an undecided write up.
    """
    answer: bytes = connection.script("write/decide", {"write": leader}, {"gives_up": int(gives_up)})
    return answer.decode()


def is_written(handle: QueueHandle, identity: Identity) -> bool:
    """Whether a write of this identity, or of a later version, is registered."""
    watermark = handle.connection.call("GET", handle.keys.watermark(identity.app_id))
    return watermark is not None and int(watermark) >= identity.version


def roll_forward(
    handle: QueueHandle, write_id: str, progress: Progress | None = None, *, waits: bool = True
) -> WriteRecord:
    """Commits the rest of a registered write; calls progress(rows processed, rows in total).

    waits: whether to wait for room in a full queue (`whenFull=wait`); otherwise the write stays open. Older writes are
    committed first if one of the two replaces the queue. Raises StagedDataLost when registered chunks are gone from
    Redis.
    """
    position = 0
    names = ("jobs", "dialect", "flows", "mode", "moves", "graph", "maxLength", "unkept", "events")
    values = handle.connection.call("HMGET", handle.keys.write(write_id), *names)
    jobs, dialect, flows, mode, moves, graph, max_length, unkept, events = values
    if unkept is not None:
        open_prepared([handle], write_id)
    verb, touched = _committing(handle, flows, mode, moves, graph)
    total = int(jobs or 0)
    wait = RoomWait(handle.keys.queue, LengthLimit(int(max_length or 0), "wait"))
    if dialect:
        # The dialect that its chunks are encoded for, which can differ from that of the handle.
        handle = replace(handle, dialect=DIALECTS[dialect.decode()])
    handle = replace(handle, events=ALL_EVENTS if events is None else events.decode())
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
    handle: QueueHandle, flows: bytes | None, mode: bytes | None, moves: bytes | None, graph: bytes | None
) -> tuple[str, list[str]]:
    """The verb that commits a write with these fields, and the other keys that it may touch."""
    if mode == b"manage":
        return "commit_managed", touched_keys(handle, json.loads(moves or b"[]"))
    if mode == b"schedule":
        return "commit_schedules", []
    if flows is not None:
        return "commit_flows", touched_keys(handle, json.loads(flows), TOUCHED)
    return "commit" if graph is None else "commit_graph", []


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


def open_prepared(handles: Sequence[QueueHandle], write_id: str) -> None:
    """Opens queues of a prepared write if the write is registered, and keeps their staged chunks from expiring; removes
    a write that was given up.
    """
    groups = groups_of(handles, lambda handle: handle.site)
    all_together(groups, lambda together: _open_together(together, write_id))


def _open_together(handles: Sequence[QueueHandle], write_id: str) -> None:
    """Opens queues that one script can reach."""
    left, connection, decision = handles, handles[0].connection, ""
    while left:
        portion = left[:_QUEUES_PER_CALL]
        writes = [handle.keys.write(write_id) for handle in portion]
        fields = connection.pipeline([("HMGET", write, "leader", "appId") for write in writes])
        queues = [
            [write, handle.keys.manifest(write_id), handle.keys["open_writes"]]
            + ([handle.keys.watermark(app_id.decode())] if app_id else [])
            for write, handle, (_, app_id) in zip(writes, portion, fields, strict=True)
        ]
        leader = next((leader.decode() for leader, _ in fields if leader), None)
        if leader and not decision:
            decision = _decision(connection, leader)
        args = {"write_id": write_id, "watermark_ttl_ms": WATERMARK_TTL_MS, "most": KEYS_PER_CALL}
        args |= {"queues": msgpack.packb(queues, use_bin_type=False), "decision": decision or "given-up"}
        touched = [key for queue in queues for key in queue]
        left = left[connection.script("write/open", {"touched": touched}, args) :]


def recover(handle: QueueHandle) -> list[WriteRecord]:
    """Rolls all registered, unfinished writes of a queue forward, in the order of registration.

    Returns the records of those that are finished: others have to wait for room.
    """
    return [record for record in advance_all(handle) if record.state != "open"]


def advance_all(handle: QueueHandle, on_loss: Callable[[StagedDataLost], None] | None = None) -> list[WriteRecord]:
    """As `recover`, but returns also the records of those that have to wait for room; their state is `open`.

    on_loss: called for a write whose chunks are gone, after which the others go on; None: StagedDataLost is raised.
    """
    for write_id, score in _listed(handle):
        if score < 0:
            open_prepared([handle], write_id)
    records = []
    for write_id in open_writes(handle):
        try:
            records.append(roll_forward(handle, write_id, waits=False))
        except StagedDataLost as error:
            if on_loss is None:
                raise
            on_loss(error)
    return records


def open_writes(handle: QueueHandle) -> list[str]:
    """Ids of registered, unfinished writes, oldest first."""
    return [write_id for write_id, score in _listed(handle) if score >= 0]


def _listed(handle: QueueHandle) -> list[tuple[str, float]]:
    """Ids of unfinished writes, with scores: those of writes that are only prepared are negative."""
    listed = handle.connection.call("ZRANGE", handle.keys["open_writes"], 0, -1, "WITHSCORES")
    return [(write_id.decode(), float(score)) for write_id, score in listed]


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
