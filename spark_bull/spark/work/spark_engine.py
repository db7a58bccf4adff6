"""The slots of a Worker: one long-running Spark task per slot; for functions of DataFrames, threads of the driver.

It finds hosts from which slots do not reach Redis, because their reports would go through it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from spark_bull.core.clock import epoch_ms, monotonic_s
from spark_bull.core.errors import SparkBullError, WorkerFailed
from spark_bull.core.threads import DaemonThread
from spark_bull.run.slot.slot_plan import SlotPlan
from spark_bull.run.slot.status import Slot
from spark_bull.run.worker.slot_engine import SlotEngine
from spark_bull.run.worker.slot_group import SlotGroup, ThreadSlot
from spark_bull.run.worker.worker_options import OPEN_INSIDE, check_picklable_plan
from spark_bull.spark.platform.jvm import TaskState, add_tag, is_remote, parallelism, task_states, tasks_at_once
from spark_bull.spark.platform.requirements import ensure_python
from spark_bull.spark.work.frame_runner import WrongFrame, frame_runners
from spark_bull.spark.work.task_slots import TaggedSlots, TaskSlots

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


#: Interval at which the engine looks how many tasks Spark runs at the same time, and at the backlog.
LOOK_S: Final = 2.0


class DriverSlot(TaggedSlots, ThreadSlot):
    """The Spark jobs of its functions have its tag."""

    def _run_slots(self) -> None:
        frame_runners(self._plan.runner)[0].check_spark()
        add_tag(self._spark, self.tag)
        try:
            super()._run_slots()
        except WrongFrame as error:
            raise WorkerFailed(f"worker {self._plan.worker} failed: {error}") from error


class SparkEngine(SlotEngine):
    """Runs `slots` slots; without a number, one for each task that Spark runs at the same time, except for one.

    Then it starts further slots when there are more executors, of which Spark Connect does not tell. With dynamic
    allocation, it does so only until the first slot runs: slots would never release the executors that Spark starts for
    other queries.
    """

    def __init__(self, spark: SparkSession, plan: SlotPlan, slots: int | None) -> None:
        super().__init__(plan)
        self._spark = spark
        self._given = slots
        self._on_driver = bool(frame_runners(plan.runner))
        self._tag = f"spark_bull-{plan.worker}"
        self._has_warned = False
        self._watch = ReachWatch(spark, plan.worker)
        #: How many tasks Spark runs at the same time; 0: there is no executor yet, or it is not known.
        self._tasks = 0

    def totals(self) -> dict[str, Any]:
        """Returns the summed counters of the slots, and how many run and wait. Raises ConnectionLost."""
        totals = super().totals()
        waits = self.running and not self._stopping.is_set()
        return totals | {
            "waiting_slots": max(0, sum(len(group.numbers) for group in self._running_groups) - totals["slots"])
            if waits
            else 0,
            "tasks": self._tasks,
            "unreached": self._watch.hosts,
        }

    def _start_slots(self) -> None:
        """Starts the first Spark job. Raises OptionError if a function of the plan cannot be pickled."""
        ensure_python()
        if not self._on_driver:
            check_picklable_plan(cloudpickle.dumps, OPEN_INSIDE, self._plan)
            warn_of_speculation(self._spark)
        self._start_first()

    def _start_first(self) -> None:
        """Starts the first slots, and what starts others later."""
        if self._on_driver:
            for _ in range(self._given or 1):
                self._add_slots(1)
        elif is_remote(self._spark):
            self._add_slots(self._given or max(1, parallelism(self._spark) - 1))
        else:
            self._tasks = tasks_at_once(self._spark)
            self._add_slots(self._wanted)
            DaemonThread("executors", self._follow_cluster).start()

    def _new_group(self, plan: SlotPlan, numbers: range) -> SlotGroup:
        kind = DriverSlot if self._on_driver else TaskSlots
        return kind(self._spark, plan, numbers, f"{self._tag}-{numbers.start}", self._request_stop)

    def _follow_cluster(self) -> None:
        """Looks from time to time how many tasks Spark runs at the same time, until the slots are to stop."""
        is_dynamic = self._spark.conf.get("spark.dynamicAllocation.enabled", "false") == "true"
        may_grow = self._given is None
        self._warn_of_full_cluster(is_dynamic)
        while not self._stopping.wait(LOOK_S):
            try:
                has_run = bool(self._look_at_reports())
                self._tasks = tasks_at_once(self._spark)
                if may_grow:
                    self._add_more_slots(self._wanted - self._slots)
                    may_grow = not (is_dynamic and has_run)
                self._warn_of_full_cluster(is_dynamic)
            except SparkBullError:
                # Redis is away.
                self._watch.lose()
            except Exception as error:
                # The session has ended.
                log.info("worker %s: no longer looks for executors: %s", self._plan.worker, error)
                return

    def _look_at_reports(self) -> list[Slot]:
        """Returns the reports of the slots. Ends the slots if none reaches Redis. Raises ConnectionLost."""
        reports = self._reports()
        groups = [group for group in self._running_groups if isinstance(group, TaggedSlots)]
        if not (self._on_driver or is_remote(self._spark)):
            try:
                self._watch.look(groups, reports)
            except WorkerFailed as error:
                for group in groups:
                    group.fail(error)
        return reports

    @property
    def _wanted(self) -> int:
        return self._given or max(1, self._tasks - 1)

    def _add_more_slots(self, count: int) -> None:
        if count > 0:
            log.info("worker %s: starts %d more slots, as there are more executors", self._plan.worker, count)
        self._add_slots(count)

    def _warn_of_full_cluster(self, is_dynamic: bool) -> None:
        """Logs a warning, once, if the slots leave no core to other queries; Spark may start executors for them."""
        if self._has_warned or is_dynamic or not 0 < self._tasks <= self._slots:
            return
        self._has_warned = True
        log.warning(
            "worker %s: its %d slots take all cores, as Spark runs %d tasks at the same time. Other queries of the "
            "application wait until the worker stops%s: give fewer `slots`, or more cores",
            self._plan.worker,
            self._slots,
            self._tasks,
            f", and {self._slots - self._tasks} slots never start" if self._slots > self._tasks else "",
        )


def warn_of_speculation(spark: SparkSession) -> None:
    """Logs a warning if Spark may start a slot twice."""
    if spark.conf.get("spark.speculation", "false") == "true":
        log.warning(
            "expected spark.speculation=false: when a worker stops, Spark may start a second copy of a slot whose jobs "
            "still run, and kill the first one; its jobs are processed again"
        )
