"""Active jobs without a lock: their worker has died, or was suspended for longer than their locks."""

from __future__ import annotations

import time
from typing import Final

from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.handle.walk import MAX_IDS

#: Bull moves a job to `active` and locks it in two steps.
_BETWEEN_STEPS_S: Final = 0.5


def unlocked(handle: QueueHandle) -> list[str]:
    """The ids of the active jobs that had no lock at two looks, one after the other."""
    found = _look(handle)
    if not found:
        return []
    time.sleep(_BETWEEN_STEPS_S)
    again = set(_look(handle))
    return [job_id for job_id in found if job_id in again]


def _look(handle: QueueHandle) -> list[str]:
    found: list[str] = []
    position, length = 0, MAX_IDS
    while length == MAX_IDS:
        args = {"base": handle.keys.base, "position": position, "window": MAX_IDS}
        length, *ids = handle.connection.script("read/unlocked", {"active": handle.keys["active"]}, args)
        found += (job_id.decode("utf-8", "replace") for job_id in ids)
        position += length
    return found
