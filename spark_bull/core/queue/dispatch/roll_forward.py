"""Rolls registered writes forward: chunk after chunk becomes jobs.

Any process can do it: the one that has registered the write, the next write, `recover()`. Several at once are safe:
each step names the position that it expects, and changes nothing at another one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from spark_bull.core.errors import StagedDataLost
from spark_bull.core.model.queues import WriteRecord
from spark_bull.core.queue.dispatch import verbs
from spark_bull.core.queue.dispatch.callbacks import Callback, callback_of, close_callback, open_callback
from spark_bull.core.queue.dispatch.stages import open_prepared
from spark_bull.core.queue.dispatch.write_records import OpenWrite, listed_writes, open_writes, read_open, read_record
from spark_bull.core.queue.handle.admission import LengthLimit, RoomWait
from spark_bull.core.queue.handle.handle import QueueHandle

log = logging.getLogger("spark_bull")

Progress = Callable[[int, int], None]

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
        reply = verbs.commit(write.handle, write_id, position, write.kind.verb, write.touched)
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
        while verbs.empty(handle, write.id):
            pass
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
    return callback_of(write.handle.connection.call("HGET", write.handle.keys.write(write.id), "callback"))


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
