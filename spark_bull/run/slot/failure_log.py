"""Logs on the driver what slots report: why attempts fail, the first ones, then a few a minute; damage of queues."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import Final

from spark_bull.run.slot.failures import FailedAttempt, FewInPeriod, failures_in
from spark_bull.run.slot.status import Slot, damage_in

log = logging.getLogger("spark_bull")

#: Said once, with the first failure.
_FURTHER: Final = "; further failures are logged a few per minute; see each job's failedReason"


class FailureLog:
    """Logs the failures of a worker, each of them once. who: begins each line, such as `worker 1f2e`."""

    def __init__(self, who: str) -> None:
        self._who = who
        self._few = FewInPeriod()
        self._logged: dict[tuple[int, int], int] = {}
        self._advice = _FURTHER
        self._logging = Lock()

    def log_reports(self, reports: Iterable[Slot]) -> None:
        """Logs the new failures in reports of slots. May be called in several threads."""
        with self._logging:
            for report in reports:
                run = int(report["slot"]), int(report["started"])
                for one in failures_in(report):
                    if one.number > self._logged.get(run, 0):
                        self._logged[run] = one.number
                        self.log(one)

    def log(self, one: FailedAttempt) -> None:
        """Logs a failure, unless there were too many."""
        if self._few.take():
            trace = f"\n{one.trace}" if one.trace else ""
            log.warning(
                "%s: job %s of queue %s failed: %s%s%s",
                self._who,
                one.job,
                one.queue,
                one.reason,
                self._advice,
                trace,
            )
            self._advice = ""


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
