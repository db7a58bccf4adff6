"""The record of a registered write, a hash: which kind of write it is, and how far it has come; and its stages.

Beside the fields of its kind, a record may have these fields. `replace`: the queue is emptied before the first job,
then `emptied` is set. `callback`: a job that is added before the first job and may start after the last one;
`callbackState` is open, then closed. `maxLength` and `whenFull`: with fail, the write is registered only if all of its
jobs fit; otherwise each step adds those that fit. `keepsIds` and `outcomes`: each step keeps the ids of its jobs, or
what became of each change. `events`: the only events that the write writes. `search`: the write is, or was, prepared
while its rows were found.

Stages are chunks that no worker sees, until the write is registered. A large write is prepared in portions; its queues
are opened once it is registered, or discarded when it was given up.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import msgpack

from spark_bull.core.dialects.registry import DIALECTS
from spark_bull.core.errors import SparkBullError
from spark_bull.core.keys import SEGMENTS, QueueKeys
from spark_bull.core.late import late
from spark_bull.core.options.parts import ALL_EVENTS
from spark_bull.core.queue.dispatch.flows import TOUCHED
from spark_bull.core.queue.handle.handle import QueueHandle, touched_keys
from spark_bull.core.store.connection import Connection
from spark_bull.core.store.round_trips import all_together, groups_of
from spark_bull.core.store.scripts import script_command

if TYPE_CHECKING:
    from spark_bull.core.model import queues as queue_types
    from spark_bull.core.model import read_jobs as job_types
    from spark_bull.core.model.queues import WriteRecord
    from spark_bull.core.model.read_jobs import Changed
else:
    queue_types, job_types = late("queues", "read_jobs", of="spark_bull.core.model")

#: Calls of a write whose outcomes are read at once.
_OUTCOMES_PER_CALL: Final = 20
#: Records that are read in one round trip.
_RECORDS_PER_TRIP: Final = 100

Fields: TypeAlias = Mapping[str, str | int]


class WriteKind(NamedTuple):
    """What the chunks of a write are.

    verb: commits the next chunk. marks: the fields of the record that tell the kind. queues: the field with the names
    of the other queues that the write may touch; touched: the names of their keys.
    """

    verb: str
    marks: Mapping[str, str] = {}
    queues: str | None = None
    touched: Iterable[str] = ()

    def fields(self, queues: Iterable[str] = ()) -> Fields:
        """The fields of a record of this kind. queues: the other queues that the write may touch."""
        return self.marks if self.queues is None else {**self.marks, self.queues: json.dumps(sorted(queues))}

    def has(self, fields: Fields) -> bool:
        """Whether the record with these fields is of this kind."""
        if not self.marks:
            return self.queues in fields
        return all(str(fields.get(name)) == value for name, value in self.marks.items())


JOBS: Final = WriteKind("commit")
FLOWS: Final = WriteKind("commit_flows", queues="flows", touched=TOUCHED)
#: Jobs that depend on each other, by the column `dependsOn`.
GRAPH: Final = WriteKind("commit_graph", {"graph": "1"})
SCHEDULERS: Final = WriteKind("commit_schedules", {"mode": "schedule"})
#: Changes of jobs, which can move them to other queues.
CHANGES: Final = WriteKind("commit_managed", {"mode": "manage"}, "moves", SEGMENTS)
_KINDS: Final = (FLOWS, GRAPH, SCHEDULERS, CHANGES)
_READ: Final = ("jobs", "dialect", "events", "maxLength", "unkept", "flows", "graph", "mode", "moves")


class OpenWrite(NamedTuple):
    """A registered write. handle: its queue, with the dialect that its chunks are encoded for, and the events that it
    writes. touched: other keys that it may touch. max_length: of the queue; 0: none. is_kept: whether its staged chunks
    no longer expire.
    """

    id: str
    handle: QueueHandle
    kind: WriteKind
    touched: Sequence[str]
    jobs: int
    max_length: int
    is_kept: bool


def kind_of(fields: Fields) -> WriteKind:
    """The kind of a write with these fields in its record."""
    return next((kind for kind in _KINDS if kind.has(fields)), JOBS)


def read_open(handle: QueueHandle, write_id: str) -> OpenWrite:
    """What is to be known of a registered write to finish it."""
    values = handle.connection.call("HMGET", handle.keys.write(write_id), *_READ)
    fields = {name: value.decode() for name, value in zip(_READ, values, strict=True) if value is not None}
    kind = kind_of(fields)
    named = json.loads(fields.get(kind.queues or "", "[]"))
    return OpenWrite(
        write_id,
        replace(
            handle,
            dialect=DIALECTS[fields["dialect"]] if "dialect" in fields else handle.dialect,
            events=fields.get("events", ALL_EVENTS),
        ),
        kind,
        touched_keys(handle, named, kind.touched) if named else [],
        int(fields.get("jobs", 0)),
        int(fields.get("maxLength", 0)),
        "unkept" not in fields,
    )


#: Age of an open write from which on its program counts as dead, ms.
DEAD_AFTER_MS: Final = 60_000


def open_writes(handle: QueueHandle) -> list[str]:
    """Ids of registered, unfinished writes, oldest first."""
    return [write_id for write_id, is_open in listed_writes(handle) if is_open]


def listed_writes(handle: QueueHandle) -> list[tuple[str, bool]]:
    """Ids of unfinished writes, and whether each is registered; the others are only prepared."""
    listed = handle.connection.call("ZRANGE", handle.keys["open_writes"], 0, -1, "WITHSCORES")
    return [(write_id.decode(), float(score) >= 0) for write_id, score in listed]


def records(handle: QueueHandle, start: int = 0) -> Iterator[WriteRecord]:
    """Records of the queue's writes: unfinished ones, then the others, each the newest first. Reads them in portions.

    start: number of the first one.
    """
    unfinished = _unfinished(handle)
    yield from _read_records(handle, unfinished[start:])
    # Writes that end meanwhile move the others to later ranks, so that some are met twice, and none is missed.
    met, rank = set(unfinished), max(start - len(unfinished), 0)
    # ZREVRANGE is not among the commands of all verbs.
    while found := handle.connection.call(
        "ZRANGE", handle.keys["finished_writes"], rank, rank + _RECORDS_PER_TRIP - 1, "REV"
    ):
        ids = [write_id for write_id in map(bytes.decode, found) if write_id not in met]
        yield from _read_records(handle, ids)
        met.update(ids)
        rank += len(found)


def _unfinished(handle: QueueHandle) -> list[str]:
    """Ids of writes that look for their rows, then of those that are registered; each the newest first."""
    listed = listed_writes(handle)
    # The scores of prepared writes are negative, so that the newest is the first.
    prepared = [write_id for write_id, is_open in listed if not is_open]
    looks = handle.connection.pipeline([("HEXISTS", handle.keys.write(write_id), "search") for write_id in prepared])
    return [*compress(prepared, looks), *(write_id for write_id, is_open in reversed(listed) if is_open)]


def read_record(handle: QueueHandle, write_id: str) -> WriteRecord | None:
    """The record of one write, or None when there is none or it has expired."""
    return next(_read_records(handle, [write_id]), None)


def _read_records(handle: QueueHandle, write_ids: Sequence[str]) -> Iterator[WriteRecord]:
    for start in range(0, len(write_ids), _RECORDS_PER_TRIP):
        ids = write_ids[start : start + _RECORDS_PER_TRIP]
        replies = handle.connection.pipeline([("HGETALL", handle.keys.write(i)) for i in ids])
        yield from (_record(handle, i, fields) for i, fields in zip(ids, replies, strict=True) if fields)


def _record(handle: QueueHandle, write_id: str, raw: Mapping[bytes, bytes]) -> WriteRecord:
    fields = {name.decode(): value.decode() for name, value in raw.items()}

    def number(name: str) -> int | None:
        return int(fields[name]) if name in fields else None

    return queue_types.WriteRecord(
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
                yield job_types.Changed(job_id, action.replace("_", "-"), outcome)
        start += len(packed)


#: TTL of the watermark of a query or application after its last write.
WATERMARK_TTL_MS: Final = 400 * 86_400_000

#: Maximum number of keys that one script registers, prepares, opens or discards.
KEYS_PER_CALL: Final = 500
#: Chunks, and their bytes, that are staged in one round trip.
_CHUNKS_PER_TRIP: Final = 100
_BYTES_PER_TRIP: Final = 1 << 20
#: Maximum number of queues that one script opens.
_QUEUES_PER_CALL: Final = 100


@dataclass
class StagedPart:
    """The chunks that one attempt of a task has staged for one queue."""

    stage: str
    chunks: int
    rows: int


class QueuePlan(NamedTuple):
    """The part of a write for one queue; its staged parts in the order of the rows."""

    handle: QueueHandle
    parts: Sequence[StagedPart]
    fields: Mapping[str, str | int]


class Identity(NamedTuple):
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


def is_written(handle: QueueHandle, identity: Identity) -> bool:
    """Whether a write of this identity, or of a later version, is registered."""
    watermark = handle.connection.call("GET", handle.keys.watermark(identity.app_id))
    return watermark is not None and int(watermark) >= identity.version
