"""Counts what a slot does, and publishes it in Redis."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from spark_bull.clock import epoch_ms, monotonic_s
from spark_bull.errors import SparkBullError
from spark_bull.model.outcomes import Lost, Outcomes
from spark_bull.queue.core.handle import QueueHandle

log = logging.getLogger("spark_bull")

#: How often a busy slot publishes its counters.
REPORT_INTERVAL_S: Final = 1.0
#: How long they stay in Redis after that.
REPORT_TTL_MS: Final = 30 * 86_400_000


@dataclass
class SlotStats:
    """Jobs by what became of them.

    `returned`: given back by the processor, delayed, or waiting for their children. `lost`: their outcomes were
    rejected.
    """

    claimed: int = 0
    completed: int = 0
    failed: int = 0
    retried: int = 0
    returned: int = 0
    lost: int = 0

    def count(self, outcomes: Outcomes, lost: Sequence[Lost]) -> None:
        """Counts outcomes, except those that were rejected."""
        gone = {job_id for job_id, _ in lost}
        self.completed += len(outcomes.completed_ids) - sum(job_id in gone for job_id in outcomes.completed_ids if gone)
        self.failed += sum(job.id not in gone for job in outcomes.failed)
        self.retried += sum(job.id not in gone for job in outcomes.retried)
        returned = (*outcomes.returned, *outcomes.unstarted, *outcomes.waiting_for_children)
        self.returned += sum(job_id not in gone for job_id in returned)
        self.returned += sum(job.id not in gone for job in outcomes.delayed)
        self.lost += sum(not one.is_blocked for one in lost)


class SlotReport:
    """Publishes a slot's state and counters. state: starting, idle, busy or stopped."""

    def __init__(self, handle: QueueHandle, worker: str, run: int, slot: int, stats: SlotStats) -> None:
        self._handle = handle
        self._key = handle.keys.slots(worker)
        self._run = run
        self._slot = slot
        self._stats = stats
        self._started = epoch_ms()
        self._published = ""
        self._published_at = 0.0

    def publish_now_and_then(self, state: str, clients: Sequence[int]) -> None:
        """Publishes the counters unless that was done within the last second."""
        if monotonic_s() - self._published_at > REPORT_INTERVAL_S:
            self.publish(state, clients)

    def publish(self, state: str, clients: Sequence[int]) -> None:
        """Publishes the counters if they have changed. clients: ids of the connections on which the slot waits."""
        slot = {
            "run": self._run,
            "slot": self._slot,
            "started": self._started,
            "state": state,
            "clients": list(clients),
        }
        report = json.dumps(slot | asdict(self._stats))
        self._published_at = monotonic_s()
        if report == self._published:
            return
        name = f"{self._slot}:{self._started}"
        try:
            self._handle.connection.pipeline([("HSET", self._key, name, report), ("PEXPIRE", self._key, REPORT_TTL_MS)])
            self._published = report
        except SparkBullError as error:
            log.warning(
                "queue %s, slot %d: could not publish its status report (%s)",
                self._handle.keys.queue,
                self._slot,
                error,
            )
