"""Logs on the driver which queues of a worker are damaged, once until that changes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from threading import Lock

from spark_bull.run.slot.status import Slot, damage_in

log = logging.getLogger("spark_bull")


class DamageLog:
    """Logs the damage of the queues of a worker."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._known: Mapping[str, str] = {}
        self._logging = Lock()

    def log_reports(self, reports: Sequence[Slot]) -> None:
        """Logs what has changed since the last reports of the slots that run. May be called in several threads."""
        if not reports:
            return
        with self._logging:
            known, self._known = self._known, damage_in(reports)
            for queue, error in self._known.items():
                if known.get(queue) != error:
                    log.error(
                        "worker %s: no jobs of queue %s are processed until it is repaired: %s",
                        self._worker,
                        queue,
                        error,
                    )
            for queue in known.keys() - self._known.keys():
                log.warning("worker %s: queue %s is no longer damaged", self._worker, queue)
