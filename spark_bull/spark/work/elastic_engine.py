"""A range of slots: starts and ends slots by the backlog."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from itertools import count, islice
from typing import Any, Final

from pyspark.sql import SparkSession

from spark_bull.core.clock import monotonic_s
from spark_bull.core.errors import SparkBullError, WorkerFailed
from spark_bull.core.model.limits import Look, SlotRange, SlotScale
from spark_bull.core.queue.jobs.read import counts
from spark_bull.core.threads import DaemonThread
from spark_bull.run.slot.slot_plan import SlotPlan
from spark_bull.run.slot.slot_report import report_name
from spark_bull.run.slot.status import Slot, counters_of, damage_in, lag_in
from spark_bull.run.worker.slot_engine import running_of
from spark_bull.run.worker.slot_group import SlotGroup
from spark_bull.spark.platform.jvm import is_remote, parallelism, tasks_at_once
from spark_bull.spark.platform.spark_errors import first_line
from spark_bull.spark.work.spark_engine import LOOK_S, SparkEngine

log = logging.getLogger("spark_bull")

#: The counters of attempts that have ended, and of all that a slot holds no more.
_ENDED: Final = ("completed", "failed", "retried")
_SETTLED: Final = (*_ENDED, "returned", "lost")


class ElasticEngine(SparkEngine):
    """Runs as many slots of a range as the backlog needs; each is a Spark job of its own.

    Without dynamic allocation, it starts no more slots than there are cores but one. A slot that is to end finishes the
    jobs that it has claimed; one that has no core yet is cancelled. An idle worker has none if 0 is the least number.
    """

    def __init__(self, spark: SparkSession, plan: SlotPlan, limits: SlotRange, target_wait_s: float) -> None:
        super().__init__(spark, plan, limits.least)
        self._range = limits
        self._scale = SlotScale(target_wait_s)
        self._is_dynamic = spark.conf.get("spark.dynamicAllocation.enabled", "false") == "true"
        #: Under Spark Connect: the parallelism at the start; Connect does not report later changes.
        self._remote_tasks = 0
        self._past_restarts = 0
        #: Numbers of slots that were cancelled. Their Python process may outlive them: it must still read that it is to
        #: stop, so others never get these numbers.
        self._cancelled = set[int]()
        self._failure: WorkerFailed | None = None
        #: Runs of slots that have died, and how many jobs the counters say that they hold; None: not known yet.
        self._dead = set[str]()
        self._left_behind: int | None = 0

    def _start_first(self) -> None:
        if is_remote(self._spark):
            self._remote_tasks = parallelism(self._spark)
        elif not self._on_driver:
            self._tasks = tasks_at_once(self._spark)
        self._grow(self._range.least)
        self._warn_of_full_cluster(self._is_dynamic)
        DaemonThread("elastic slots", self._follow_backlog).start()

    @property
    def running(self) -> bool:
        """Whether slots run, or may start."""
        return super().running or not self._stopping.is_set()

    @property
    def error(self) -> BaseException | None:
        """Why a slot has ended, or that Spark cannot be asked any more, as when its session has ended."""
        return super().error or self._failure

    def wait(self, timeout_s: float | None = None) -> bool:
        began = monotonic_s()
        if not self._stopping.wait(timeout_s):
            return False
        return super().wait(None if timeout_s is None else max(0.0, timeout_s - (monotonic_s() - began)))

    def totals(self) -> dict[str, Any]:
        totals = super().totals()
        return totals | {"restarts": totals["restarts"] + self._past_restarts}

    def _follow_backlog(self) -> None:
        """Looks at the backlog from time to time, until the slots are to stop."""
        while not self._stopping.wait(LOOK_S):
            try:
                self._look()
            except SparkBullError as error:
                self._watch.lose()
                log.debug("worker %s: could not look at its backlog: %s", self._plan.worker, error)
            except Exception as error:
                if not self._stopping.is_set():
                    self._failure = WorkerFailed(
                        f"worker {self._plan.worker} could not look at its executors: {first_line(error)}"
                    )
                    self._failure.__cause__ = error
                self._stopping.set()
        # A slot may have started while the others were requested to stop.
        self._request_stop()

    def _look(self) -> None:
        """Looks once, and starts or ends slots. Raises ConnectionLost."""
        if not (is_remote(self._spark) or self._on_driver):
            self._tasks = tasks_at_once(self._spark)
        ended = [group for group in self._groups if not group.running and group.error is None]
        asked = [group for group in self._groups if group.running and group.is_stopping and group.request_stop()]
        reports = self._look_at_reports()
        self._forget(ended, reports)
        for group in asked:
            # One that starts from now on reads the request before it claims a job.
            if not any(map(group.has_started, reports)):
                self._cancelled.update(group.numbers)
                group.interrupt()
        staying = [group for group in self._groups if not group.is_stopping]
        look = self._looked(reports)
        wanted = self._scale.wanted(look, len(staying), self._limits)
        if wanted != len(staying):
            what = "worker %s: %d slots from now on instead of %d, as %d jobs wait and %.1f slots are busy"
            log.info(what, self._plan.worker, wanted, len(staying), look.waiting, look.busy)
        self._grow(wanted - len(staying))
        self._end_slots(staying, len(staying) - wanted, reports)

    def _looked(self, reports: Sequence[Slot]) -> Look:
        """What the worker does now. Raises ConnectionLost."""
        handles = [queue.handle for queue in self._plan.queues]
        counters = counters_of(handles, self._plan.worker)
        working = running_of(self._groups, reports)
        damaged = damage_in(working)
        jobs = [counts(handle) for handle in handles if handle.keys.queue not in damaged]
        running = sum(one["state"] != "starting" for one in working)
        held = counters["claimed"] - sum(map(counters.__getitem__, _SETTLED))
        held = min(held - self._of_dead(held, working, reports), sum(one["active"] for one in jobs))
        return Look(
            monotonic_s(),
            0 if self._is_paused else sum(map(lag_in, jobs)),
            max(0.0, min(running, held / self._plan.concurrency)),
            running,
            sum(map(counters.__getitem__, _ENDED)),
        )

    def _of_dead(self, held: int, working: Sequence[Slot], reports: Sequence[Slot]) -> int:
        """How many of the jobs that the worker holds by its counters belonged to processes that have died.

        They show when no slot has a job. A report may be a second old, so that the smallest number is right.
        """
        of_working = {report_name(one["slot"], one["started"]) for one in working}
        dead = {report_name(one["slot"], one["started"]) for one in reports if one["state"] != "stopped"} - of_working
        if not dead <= self._dead:
            self._left_behind = None
        self._dead = dead
        if all(one["state"] == "idle" for one in working):
            self._left_behind = held if self._left_behind is None else min(held, self._left_behind)
        return self._left_behind or 0

    @property
    def _limits(self) -> SlotRange:
        """The range, as far as there are cores; one of them is left to other queries."""
        least, most = self._range
        if self._on_driver or self._is_dynamic:
            return self._range
        return SlotRange(least, max(least, min(most, (self._remote_tasks or self._tasks) - 1)))

    def _grow(self, number: int) -> None:
        with self._changing:
            if self._stopping.is_set():
                return
            taken = self._cancelled | {group.numbers.start for group in self._groups}
            for free in islice((one for one in count() if one not in taken), max(0, number)):
                self._start_group(range(free, free + 1))
            self._slots = len(self._groups)

    def _end_slots(self, groups: Sequence[SlotGroup], number: int, reports: Sequence[Slot]) -> None:
        """Requests this number of these slots to stop."""
        by_number = {group.numbers.start: group for group in groups}
        for first in first_to_end(list(by_number), running_of(groups, reports))[: max(0, number)]:
            by_number[first].request_stop()

    def _forget(self, ended: Sequence[SlotGroup], reports: Sequence[Slot]) -> None:
        """Removes slots that have ended, so that others can have their numbers. Raises ConnectionLost.

        Those that were cancelled keep their number and the request to stop, which expires.
        """
        with self._changing:
            for group in ended:
                group.forget(reports)
                if group.numbers.start not in self._cancelled:
                    group.withdraw_stop()
                self._past_restarts += group.restarts
                self._groups = [one for one in self._groups if one is not group]
            self._slots = len(self._groups)


def first_to_end(numbers: Sequence[int], reports: Sequence[Slot]) -> list[int]:
    """Orders slots, those first that are to end first: without a job, and on executors with few slots, one by one.

    reports: of the slots that run.
    """
    by_number = {report["slot"]: report for report in reports}
    slots = Counter(report["executor"] for report in reports)

    def order(number: int) -> tuple[bool, int, str, int]:
        report = by_number.get(number)
        if report is None:
            return False, 0, "", -number
        return report["state"] == "busy", slots[report["executor"]], report["executor"], -number

    return sorted(numbers, key=order)
