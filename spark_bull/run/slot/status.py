"""Aggregates the slots' status reports."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.jobs.read import counts

Slot = dict[str, Any]
_COUNTED: Final = ("claimed", "completed", "failed", "retried", "returned", "lost")


@dataclass(frozen=True)
class WorkerStatus:
    """The state, counters and backlog of a Worker.

    Parameters:
      state: new, running, paused, stopped or failed.
      claimed: claimed jobs.
      completed: completed jobs.
      failed: failed jobs.
      retried: failed attempts that are followed by another one.
      returned: jobs returned to the queue without an outcome, delayed, or waiting for their children.
      lost: outcomes that Redis rejected, because the job's lock was gone, and waiting jobs whose hash was gone: Redis
        has evicted it, or somebody has deleted it.
      jobs_per_second: finished jobs per second since the previous call of status().
      lag: jobs that can be claimed now.
      slots: running slots.
      busy: slots that process jobs.
      waiting_slots: slots that do not run: `waiting_for` says why.
      tasks: number of tasks that Spark runs at the same time, 0: unknown, or there is no executor yet.
      unreached: why slots on hosts do not reach Redis, by the names of these hosts.
      restarts: number of times that the Spark job with the slots was restarted.
      damaged: what keeps slots from working on queues until their keys are repaired, by the names of these queues.
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
    waiting_slots: int = 0
    tasks: int = 0
    unreached: Mapping[str, str] = field(default_factory=dict)
    restarts: int = 0
    damaged: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        rate = f"{self.jobs_per_second:,.0f} jobs/s, " if self.state in ("running", "paused") else ""
        return (
            f"{self.state}: {self.completed:,} completed, {self.failed:,} failed, {self.retried:,} retried; "
            f"{rate}{self.lag:,} waiting{self._shown_slots}"
            + (f"; damaged: {', '.join(sorted(self.damaged))}" if self.damaged else "")
        )

    @property
    def _shown_slots(self) -> str:
        busy = f", {self.busy} of {self.slots} slots busy" if self.slots else ""
        if not self.waiting_slots:
            return busy or (", 0 slots running" if self.state == "running" else "")
        more = f"{self.waiting_slots} {'more ' if busy else ''}waiting for {self.waiting_for}"
        return f"{busy or ', 0 slots running'}, {more}"

    @property
    def waiting_for(self) -> str:
        """What slots wait for that do not run; empty if all run."""
        if not self.waiting_slots:
            return ""
        if self.unreached:
            return f"Redis, which they do not reach from {', '.join(sorted(self.unreached))}"
        if not self.tasks:
            return "an executor with a free core"
        if self.slots + self.waiting_slots > self.tasks:
            return f"a core: Spark runs {self.tasks} tasks at the same time"
        return "a free core"

    @property
    def finished(self) -> int:
        """Completed and failed jobs."""
        return self.completed + self.failed


def slots_of(handle: QueueHandle, worker: str) -> list[Slot]:
    """Reads the last report of each run of each slot."""
    reports: list[bytes] = handle.connection.call("HVALS", handle.keys.slots(worker))
    return [json.loads(report) for report in reports]


def latest(slots: Sequence[Slot]) -> list[Slot]:
    """Returns the report of the last run of each slot."""
    by_number: dict[int, Slot] = {}
    for slot in sorted(slots, key=lambda report: int(report["started"])):
        by_number[slot["slot"]] = slot
    return list(by_number.values())


def damage_in(reports: Sequence[Slot]) -> dict[str, str]:
    """What keeps slots from working on queues, by the names of these. Reports of older versions have none."""
    return {queue: error for report in reports for queue, error in report.get("damaged", {}).items()}


def counters_of(handles: Sequence[QueueHandle], worker: str) -> dict[str, int]:
    """Sums a worker's counters of its queues, by the names in WorkerStatus. They stay exact when processes die."""
    raw = [handle.connection.call("HGETALL", handle.keys.counters(worker)) for handle in handles]
    return {name: sum(int(counters.get(name.encode(), 0)) for counters in raw) for name in _COUNTED}


def lag_of(handle: QueueHandle) -> int:
    """Counts the jobs that can be claimed now. Raises QueueDamaged."""
    return lag_in(counts(handle))


def lag_in(jobs: Mapping[str, int]) -> int:
    """The jobs that can be claimed now. jobs: numbers by state."""
    return jobs["wait"] + jobs.get("prioritized", 0)
