"""Rolls registered writes forward, chunk after chunk becomes jobs; and finds registered writes that Redis has lost.

Any process can roll a write forward: the one that has registered it, the next write, `recover()`. Several at once are
safe: each step names the position that it expects, and changes nothing at another one.

Redis loses a write when a replica that lagged takes over, or a server restarts without its data. Redis keeps the id of
a registered write for 30 days, in the list of the open writes or of the finished ones. So what a process has seen there
is the epoch of the queue: each later write leaves it in place. Only a loss removes it, also if as many writes have
followed as were lost.

The callback of a write is a job of BullMQ that runs once, when all jobs of the write have ended. It is their parent,
and is added before the first of them. Its dependencies have pending members, which stand for the jobs that are still to
be added; so children that end early never start it. Members are removed once the jobs are added. Each step can be
repeated, by any process.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias
from uuid import NAMESPACE_OID, uuid5

from spark_bull.core.clock import duration, epoch_ms, utc
from spark_bull.core.dialects.encode.chunks import pack
from spark_bull.core.dialects.encode.codec import encode
from spark_bull.core.dialects.registry import DIALECTS
from spark_bull.core.errors import DataLost, StagedDataLost, restated
from spark_bull.core.keys import QueueKeys
from spark_bull.core.model.limits import NO_WORKER
from spark_bull.core.options.redis_settings import RedisSettings
from spark_bull.core.queue.dispatch.write_records import (
    WATERMARK_TTL_MS,
    Identity,
    OpenWrite,
    listed_writes,
    open_prepared,
    open_writes,
    read_open,
    read_record,
)
from spark_bull.core.queue.handle.admission import LengthLimit, RoomWait
from spark_bull.core.queue.handle.handle import RECORD_TTL_MS, WRITES_SIZE, QueueHandle, deletion_args

if TYPE_CHECKING:
    from spark_bull.core.model.queues import WriteRecord

log = logging.getLogger("spark_bull")


@dataclass(frozen=True)
class CallbackJob:
    """The job of a callback: its queue and the queue's dialect, its name, payload (JSON text) and options."""

    queue: str
    dialect: str
    name: str | None
    data: str
    opts: Mapping[str, Any]

    def packed(self, handle: QueueHandle) -> bytes:
        """The job as a chunk. Raises OptionError or DialectError for a property that it can't have."""
        rows: dict[str, list[Any]] = {"data": [self.data], "name": [self.name], "opts": [self.opts]}
        return pack(encode(handle.dialect, rows, {}, range(1)))


@dataclass(frozen=True)
class Callback:
    """The callback of one write. `pending`: members that hold it back.

    With exactly-once delivery there is one for each queue, else one for all.
    """

    job: CallbackJob
    id: str
    pending: tuple[str, ...]

    @property
    def text(self) -> str:
        """JSON text."""
        return json.dumps(asdict(self))


def callback_id(*write: str | int | None) -> str:
    """The id of the callback of a write, which `write` identifies also when it is repeated."""
    return str(uuid5(NAMESPACE_OID, json.dumps(write)))


def _handle_of(handle: QueueHandle, callback: Callback) -> QueueHandle:
    keys = QueueKeys(callback.job.queue, handle.keys.prefix)
    return replace(handle, keys=keys, dialect=DIALECTS[callback.job.dialect])


def open_callback(handle: QueueHandle, callback: Callback, write: str | None = None) -> None:
    """Adds a callback, unless it was added before. write: key of the registered write, if any."""
    own = _handle_of(handle, callback)
    args = {"job_id": callback.id, "chunk": callback.job.packed(own), "pending": callback.pending}
    own.run("open_callback", {**args, "ttl_ms": RECORD_TTL_MS}, write=write, **_callback_keys(own.keys, callback.id))


def close_callback(handle: QueueHandle, callback: Callback, write: str) -> None:
    """Removes the member of `pending` for the jobs of the queue, as they are added; the callback can start."""
    own = _handle_of(handle, callback)
    member = handle.keys.pending(callback.id)
    # A write with at-least-once delivery has one for all queues.
    args = {"job_id": callback.id, "pending": member if member in callback.pending else callback.pending[0]}
    own.run("close_callback", args, write=write, **_callback_keys(own.keys, callback.id))


def drop_callback(handle: QueueHandle, callback: Callback) -> bool:
    """Removes the callback of a failed write, unless it has children. Returns whether there is none."""
    own = _handle_of(handle, callback)
    args = {"job_id": callback.id, "pending": callback.pending}
    return bool(own.run("drop_callback", args, **_callback_keys(own.keys, callback.id)))


def _callback_keys(keys: QueueKeys, job_id: str) -> dict[str, str]:
    return {
        "callback": keys.callback(job_id),
        "job": keys.job(job_id),
        "children": keys.children(job_id),
        "children_values": keys.children_values(job_id),
        "children_failures": keys.children_failures(job_id),
    }


Progress = Callable[[int, int], None]

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

    verb, touched: see WriteKind and OpenWrite.
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


#: States of a write after which something has to be done, or the next step follows.
_UNFINISHED: Final = ("open", "replacing", "opening", "closing", "broken")


def roll_forward(
    handle: QueueHandle, write_id: str, progress: Progress | None = None, *, waits: bool = True
) -> WriteRecord:
    """Commits the rest of a registered write; calls progress(rows processed, rows in total).

    waits: whether to wait for room in a full queue (`whenFull=wait`); otherwise the write stays open. Older writes are
    committed first if one of the two replaces the queue. Raises StagedDataLost when registered chunks are gone from
    Redis.
    """
    write, position = read_open(handle, write_id), 0
    if not write.is_kept:
        open_prepared([handle], write_id)
    wait = RoomWait(handle.keys.queue, LengthLimit(write.max_length, "wait"))
    while True:
        reply = commit(write.handle, write_id, position, write.kind.verb, write.touched)
        if reply.state == "unknown":
            raise _lost(write, position)
        position = reply.position
        if reply.state == "behind":
            if not _finish_first(write.handle, reply.detail, waits=waits):
                break
            continue
        if reply.state == "full":
            if not waits:
                break
            wait.pause(int(reply.detail), position, write.jobs)
            continue
        wait.reset()
        if progress:
            progress(position, write.jobs)
        if reply.state not in _UNFINISHED:
            break
        _act(write, reply.state, position)
    record = read_record(handle, write_id)
    if record is None:
        raise _lost(write, position)
    return record


def _act(write: OpenWrite, state: str, position: int) -> None:
    """Does what has to come before the next step."""
    handle, key = write.handle, write.handle.keys.write(write.id)
    if state == "replacing":
        args = deletion_args(handle)
        # The position is as in `obliterate`.
        for position in count(step=WRITES_SIZE):
            if handle.run_once("empty", {**args, "position": position}, write=key) != b"open":
                break
    elif state == "opening":
        open_callback(handle, _callback(write), key)
    elif state == "closing":
        close_callback(handle, _callback(write), key)
    elif state == "broken":
        raise StagedDataLost(
            f"write {write.id} to queue {handle.keys.queue}: chunks were gone from Redis after {position:,} of "
            f"{write.jobs:,} rows were committed; was it flushed, or is its maxmemory-policy other than noeviction?"
        )


def _lost(write: OpenWrite, position: int) -> StagedDataLost:
    what = (
        f"expected write {write.id} of queue {write.handle.keys.queue} in Redis, found none, although it was "
        "registered: it was lost in a fail-over or a flush"
    )
    if position == 0:
        return StagedDataLost(f"{what}. None of its rows was committed: run the write again")
    return StagedDataLost(
        f"{what} after {position:,} of {write.jobs:,} rows were committed. These may be lost, too, and the others were "
        "not committed: check what the queue has before you run the write again (jobs with a `jobId` are not added "
        "twice)"
    )


def _callback(write: OpenWrite) -> Callback:
    fields = json.loads(write.handle.connection.call("HGET", write.handle.keys.write(write.id), "callback"))
    return Callback(CallbackJob(**fields["job"]), fields["id"], tuple(fields["pending"]))


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


def advance_all(handle: QueueHandle, on_loss: Callable[[StagedDataLost], None] | None = None) -> list[WriteRecord]:
    """As `recover`, but returns also the records of those that have to wait for room; their state is `open`.

    on_loss: called for a write whose chunks are gone, after which the others go on; None: StagedDataLost is raised.
    """
    for write_id, is_open in listed_writes(handle):
        if not is_open:
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


#: A write that is older may have left the lists; the clock of this machine may differ from Redis' clock.
_KEPT_MS: Final = RECORD_TTL_MS - 86_400_000
#: In this order: a write moves from the first to the second.
_LISTS: Final = ("open_writes", "finished_writes")
_CAUSES: Final = (
    "A replica that lagged has become the primary, Redis has restarted without its last data, or keys were flushed, "
    "evicted or deleted. Compare the queue with its sources, and write again what is missing"
)

#: Ids of writes, with the times of their registration or end, ms since 1970.
_Times = dict[bytes, float]


class KnownWrites:
    """The latest writes of queues that a process knows. For queues of any Redis; not thread-safe."""

    def __init__(self) -> None:
        self._known: dict[tuple[RedisSettings, QueueKeys], _Times] = {}

    def has(self, handle: QueueHandle) -> bool:
        """Whether writes of a queue are known."""
        return _place(handle) in self._known

    def add(self, handle: QueueHandle, write_id: str, registered_ms: int) -> None:
        """Adds a write that was registered at this time or later, ms since 1970."""
        self._known[_place(handle)] = {write_id.encode(): registered_ms}

    def lost(self, handles: Sequence[QueueHandle]) -> list[DataLost]:
        """Returns an error for each of these queues, of one Redis, that has lost a known write.

        From then on, the latest writes are known that the queues have now. Raises ConnectionLost.
        """
        found = _latest(handles)
        suspects = [
            (number, write_id, known_ms)
            for number, handle in enumerate(handles)
            for write_id, known_ms in self._known.get(_place(handle), {}).items()
            if write_id not in found[number] and known_ms > epoch_ms() - _KEPT_MS
        ]
        checks = [
            ("ZSCORE", handles[number].keys[name], write_id) for number, write_id, _ in suspects for name in _LISTS
        ]
        scores = iter(handles[0].connection.pipeline(checks)) if checks else iter(())
        # Of each queue the last one.
        gone = {
            number: (write_id, known_ms)
            for (number, write_id, known_ms), in_open, in_finished in zip(suspects, scores, scores, strict=True)
            if in_open is None and in_finished is None
        }
        errors = [_lost_write(handles[number], *write, found[number]) for number, write in gone.items()]
        self._known.update(zip(map(_place, handles), found, strict=True))
        return errors


def lost_batch(handle: QueueHandle, batch: Identity) -> DataLost | None:
    """Returns an error if a queue does not know the micro-batch before this one, which the query has committed to it.

    Raises ConnectionLost.
    """
    if batch.version == 0:
        return None
    watermark = handle.connection.call("GET", handle.keys.watermark(batch.app_id))
    if watermark is not None and int(watermark) >= batch.version - 1:
        return None
    last = "none" if watermark is None else f"{int(watermark):,} as the last one"
    return DataLost(
        f"queue {handle.keys.queue}: expected micro-batch {batch.version - 1:,} of query {batch.app_id}, but Redis at "
        f"{handle.connection.where} has {last}. {_server(handle)}{_CAUSES}. Nothing is lost if the query has written "
        "to another queue or another Redis so far"
    )


def pass_batch(handle: QueueHandle, batch: Identity) -> None:
    """Notes for `lost_batch` that a micro-batch without rows was committed."""
    args = {"version": batch.version, "watermark_ttl_ms": WATERMARK_TTL_MS}
    handle.connection.script("write/pass", {"watermark": handle.keys.watermark(batch.app_id)}, args)


def report_losses(errors: Iterable[DataLost], *, strict: bool) -> None:
    """Raises the first error if strict, else logs all."""
    for error in errors:
        if strict:
            raise restated(error, f"{error}. With failOnDataLoss=false, this is only logged") from error
        log.error("DataLost: %s", error)


def _place(handle: QueueHandle) -> tuple[RedisSettings, QueueKeys]:
    return handle.connection.settings, handle.keys


def _latest(handles: Sequence[QueueHandle]) -> list[_Times]:
    """The last open and the last finished write of each queue."""
    commands = [("ZRANGE", handle.keys[name], -1, -1, "WITHSCORES") for handle in handles for name in _LISTS]
    replies = iter(handles[0].connection.pipeline(commands)) if commands else iter(())
    return [
        # The score of a write that is only prepared is negative.
        {write_id: float(score) for write_id, score in (*last_open, *last_finished) if float(score) >= 0}
        for last_open, last_finished in zip(replies, replies, strict=True)
    ]


def _lost_write(handle: QueueHandle, write_id: bytes, known_ms: float, found: _Times) -> DataLost:
    last = max(found, key=lambda one: found[one], default=None)
    now = "no writes" if last is None else f"write {last.decode()} of {utc(int(found[last]))} as the last one"
    return DataLost(
        f"queue {handle.keys.queue}: expected write {write_id.decode()} of {utc(int(known_ms))}, but Redis at "
        f"{handle.connection.where} has {now}. {_server(handle)}{_CAUSES}"
    )


def _server(handle: QueueHandle) -> str:
    """A sentence about the server of a queue; "" without permission for INFO."""
    info = handle.connection.server_info()
    if not info:
        return ""
    runs = duration(1000 * int(info["uptime_in_seconds"]))
    return f"The server has run for {runs}, with replication id {info['master_replid']}. "
