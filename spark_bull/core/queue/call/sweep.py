"""Removes the jobs that callers have left: those of a cancelled query, or of a program that was killed."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from spark_bull.core.queue.call.caller import parent_ids
from spark_bull.core.queue.call.chunks import CHUNK
from spark_bull.core.queue.call.verbs import Swept, gather_calls, sweep_calls
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.store.connection import ms_of

#: Callers that are looked at in one round.
_CALLERS: Final = 1_000


def sweep(handle: QueueHandle) -> int:
    """Removes the pending jobs of callers whose lease has lapsed, and that no worker has; returns their number."""
    return sum(_sweep_caller(handle, caller) for caller in _lapsed(handle))


def _lapsed(handle: QueueHandle) -> list[str]:
    connection, key = handle.connection, handle.keys["open_callers"]
    # Few queues have callers.
    if not connection.call("EXISTS", key):
        return []
    now = ms_of(connection.call("TIME"))
    return [caller.decode() for caller in connection.call("ZRANGEBYSCORE", key, "-inf", now, "LIMIT", 0, _CALLERS)]


def _sweep_caller(handle: QueueHandle, caller: str) -> int:
    removed = left = 0
    for parent_id, following in pairwise([*parent_ids(handle.keys, caller), ""]):
        parent, is_last = handle.keys.job(parent_id), not following
        _gather(handle, parent_id)
        swept = Swept(b"0", 0, 0)
        while swept.position:
            reply = sweep_calls(handle, caller, parent, swept.position, left=left, is_last=is_last)
            if reply is None:
                return removed
            swept, removed = reply, removed + reply.removed
        left += swept.stay
    return removed


def _gather(handle: QueueHandle, parent_id: str) -> None:
    """Removes the kept jobs of a parent that have ended. The others keep the caller until a later sweep."""
    # The ids may be no UTF-8.
    keys, cursor = handle.keys, None
    base, never_ends = keys.base.encode(), keys.never_ends.encode()
    while cursor != 0:
        cursor, found = handle.connection.call("SSCAN", keys.kept_calls(parent_id), cursor or 0, "COUNT", CHUNK)
        job_ids = [key[len(base) :] for key in found if key != never_ends]
        if job_ids:
            gather_calls(handle, job_ids, [parent_id] * len(job_ids))
