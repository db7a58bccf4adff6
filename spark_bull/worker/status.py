"""Aggregates the slots' status reports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from spark_bull.queue.handle import QueueHandle
from spark_bull.queue.read import counts

Slot = dict[str, Any]
_COUNTED: Final = ("claimed", "completed", "failed", "retried", "returned", "lost")


@dataclass(frozen=True)
class WorkerStatus:
    """What a Worker has done so far, and how much there is to do.

    Parameters:
      state: new, running, stopped or failed.
      claimed: jobs that were claimed.
      completed: jobs that have completed.
      failed: jobs that have failed.
      retried: attempts that failed and were followed by another one.
      returned: jobs that were given back, or delayed by the processor.
      lost: outcomes that Redis didn't take, because the job's lock was gone.
      jobs_per_second: jobs that finished per second, since status() was called last.
      lag: jobs that could be claimed now.
      slots: slots that work.
      busy: slots that have jobs.
      restarts: how often Spark had to start the slots again.
    """

    state: str = "new"
    claimed: int = 0
    completed: int = 0
    failed: int = 0
    retried: int = 0
    returned: int = 0
    lost: int = 0
    jobs_per_second: float = 0.0
    lag: int = 0
    slots: int = 0
    busy: int = 0
    restarts: int = 0

    def __str__(self) -> str:
        return (
            f"{self.state}: {self.completed:,} completed, {self.failed:,} failed, {self.retried:,} retried; "
            f"{self.jobs_per_second:,.0f} jobs/s, {self.lag:,} waiting, {self.busy} of {self.slots} slots busy"
        )

    @property
    def finished(self) -> int:
        """Jobs that have completed or failed."""
        return self.completed + self.failed


def slots_of(handle: QueueHandle, worker: str) -> list[Slot]:
    """The last report of each slot, earlier runs of a slot included."""
    told: list[bytes] = handle.connection.call("HVALS", handle.keys.slots(worker))
    return [json.loads(words) for words in told]


def latest(slots: Sequence[Slot]) -> list[Slot]:
    """The last run of each slot."""
    by_number: dict[int, Slot] = {}
    for slot in sorted(slots, key=lambda told: int(told["started"])):
        by_number[slot["slot"]] = slot
    return list(by_number.values())


def totals(slots: Sequence[Slot]) -> dict[str, int]:
    """Sums over all slots, by the names of WorkerStatus."""
    sums = {name: sum(int(slot[name]) for slot in slots) for name in _COUNTED}
    working = [slot for slot in latest(slots) if slot["state"] != "stopped"]
    return sums | {"slots": len(working), "busy": sum(slot["state"] == "busy" for slot in working)}


def lag_of(handle: QueueHandle) -> int:
    """How many jobs could be claimed now."""
    found = counts(handle)
    return found["wait"] + found.get("prioritized", 0)
