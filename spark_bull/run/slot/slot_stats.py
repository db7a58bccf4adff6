"""Counts what a slot does, and publishes it in Redis."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from socket import gethostname
from typing import Final

from spark_bull.core.clock import epoch_ms, monotonic_s
from spark_bull.core.errors import SparkBullError
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.run.slot.failures import Failures

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

    def add(self, counted: Mapping[str, int]) -> None:
        """Adds what a call has counted."""
        for name, number in counted.items():
            setattr(self, name, getattr(self, name) + number)


def report_name(slot: int, started: int) -> str:
    """The field of the report of a slot. started: ms since 1970."""
    return f"{slot}:{started}"


class SlotReport:
    """Publishes a slot's state and counters. state: starting, idle, busy or stopped.

    damaged: texts of the damage of the slot's queues, by their names.
    """

    def __init__(
        self,
        handle: QueueHandle,
        worker: str,
        run: int,
        slot: int,
        stats: SlotStats,
        failures: Failures,
        damaged: Mapping[str, str],
    ) -> None:
        self._handle = handle
        self._key = handle.keys.slots(worker)
        self._run = run
        self._slot = slot
        self._stats = stats
        self._failures = failures
        self._damaged = damaged
        self._started = epoch_ms()
        # All slots of an executor have the same parent, the daemon of PySpark.
        self._executor = f"{gethostname()}:{os.getppid()}"
        self._published = ""
        self._published_at = 0.0

    def publish_now_and_then(self, state: str, clients: Sequence[int]) -> None:
        """Publishes the counters unless that was done within the last second."""
        if monotonic_s() - self._published_at > REPORT_INTERVAL_S:
            self.publish(state, clients)

    def publish(self, state: str, clients: Sequence[int]) -> None:
        """Publishes the counters if they have changed. clients: ids of the connections on which the slot waits."""
        fixed = {"run": self._run, "slot": self._slot, "started": self._started, "executor": self._executor}
        counted = {**asdict(self._stats), "failures": self._failures.as_report(), "damaged": self._damaged}
        report = json.dumps({**fixed, "state": state, "clients": list(clients), **counted})
        self._published_at = monotonic_s()
        if report == self._published:
            return
        name = report_name(self._slot, self._started)
        try:
            self._handle.connection.pipeline([("HSET", self._key, name, report), ("PEXPIRE", self._key, REPORT_TTL_MS)])
            self._published = report
        except SparkBullError as error:
            queue = self._handle.keys.queue
            log.warning("queue %s, slot %d: could not publish its status report (%s)", queue, self._slot, error)
