"""Finds the hosts from which slots do not reach Redis: their reports would go through it."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pyspark.sql import SparkSession

from spark_bull.core.clock import epoch_ms, monotonic_s
from spark_bull.core.errors import WorkerFailed
from spark_bull.run.slot.status import Slot
from spark_bull.spark.platform.jvm import TaskState, task_states
from spark_bull.spark.work.task_slots import TaggedSlots

log = logging.getLogger("spark_bull")

#: A slot that has started reports within this time, if it reaches Redis: Python may start slowly.
SILENT_MS: Final = 25_000
#: For how long no slot may reach Redis until the worker fails.
PATIENCE_S: Final = 35.0
#: Its Python, or what Spark fetches for it, may still be on the way, so that this is no reason to fail.
_SILENT: Final = (
    f"a slot that runs has not reported for {SILENT_MS // 1000} s, or its Python starts slowly: see the log of the "
    "executor"
)
#: The last line of the trace of an error of the connection.
_ERROR: Final = re.compile(
    r"^spark_bull\.core\.errors\.(?:ConnectionLost|RedisUnavailable|PermissionDenied): (.*)", re.MULTILINE
)


class ReachWatch:
    """Looks at the tasks of slots that have not reported. hosts: those that do not reach Redis, with their errors."""

    def __init__(self, spark: SparkSession, worker: str) -> None:
        self._spark = spark
        self._worker = worker
        self._all_lost_s: float | None = None
        self.hosts: Mapping[str, str] = {}

    def lose(self) -> None:
        """The driver itself has not reached Redis."""
        self._all_lost_s = None

    def look(self, groups: Sequence[TaggedSlots], reports: Sequence[Slot]) -> None:
        """Logs what has changed. Raises WorkerFailed if no slot reaches Redis for some time, while the driver does.

        reports: from all slots of the worker.
        """
        by_slot: dict[int, list[TaskState]] = {}
        for group in groups:
            reported = {one["slot"] for one in reports if group.has_started(one)}
            if len(reported) < len(group.numbers):
                for task in task_states(self._spark, group.tag, len(reported)):
                    if (number := group.numbers.start + task.partition) not in reported:
                        by_slot.setdefault(number, []).append(task)
        found = {number: dict(_lost(tasks)) for number, tasks in by_slot.items()}
        self._log({host: error for lost in found.values() for host, error in lost.items()})
        are_known = [any(error != _SILENT for error in lost.values()) for lost in found.values()]
        is_any = bool(reports) or not self.hosts or not all(are_known)
        self._all_lost_s = None if is_any else self._all_lost_s or monotonic_s()
        if self._all_lost_s is not None and monotonic_s() - self._all_lost_s >= PATIENCE_S:
            said = "; ".join(f"{host}: {error}" for host, error in self.hosts.items())
            raise WorkerFailed(f"no slot of worker {self._worker} reaches Redis, although the driver does: {said}")

    def _log(self, hosts: Mapping[str, str]) -> None:
        known, self.hosts = self.hosts, hosts
        for host in hosts.keys() - known.keys():
            log.error("worker %s: its slots on host %s do not reach Redis: %s", self._worker, host, hosts[host])
        for host in known.keys() - hosts.keys():
            log.warning("worker %s: its slots on host %s reach Redis", self._worker, host)


def _lost(tasks: Sequence[TaskState]) -> Iterator[tuple[str, str]]:
    """The hosts on which a slot did not reach Redis, and why."""
    for task in tasks:
        if error := _ERROR.findall(task.error):
            yield task.host, error[-1]
        elif task.is_running and epoch_ms() - task.started > SILENT_MS and not any(one.error for one in tasks):
            yield task.host, _SILENT
