"""Stages of a write: chunks that no worker sees, until the write is registered.

A large write is prepared in portions; its queues are opened once it is registered, or discarded when it was given up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgpack

from spark_bull.core.errors import SparkBullError
from spark_bull.core.keys import QueueKeys
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.store.connection import Connection
from spark_bull.core.store.scripts import script_command
from spark_bull.core.store.steps import all_together, groups_of

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
