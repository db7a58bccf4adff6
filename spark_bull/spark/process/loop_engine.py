"""The engine `loop`: one long-running Spark task per slot."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from threading import Event, Lock
from typing import Final

from pyspark.sql import SparkSession

from spark_bull.clock import monotonic_s
from spark_bull.errors import SparkBullError
from spark_bull.spark.platform.cores import is_remote, parallelism, tasks_at_once
from spark_bull.spark.platform.job_tags import cancel_tagged
from spark_bull.spark.process.driver_slot import DriverSlot
from spark_bull.spark.process.failure_log import FailureLog
from spark_bull.spark.process.frame_runner import frame_runners
from spark_bull.spark.process.picklable import check_picklable
from spark_bull.spark.process.slot_group import SlotGroup
from spark_bull.threads import DaemonThread
from spark_bull.worker.slot.slot_plan import SlotPlan, SlotQueuePlan
from spark_bull.worker.slot.status import Slot, counters_of, latest, slots_of

log = logging.getLogger("spark_bull")

#: Interval at which stop() unblocks idle slots.
UNBLOCK_INTERVAL_S: Final = 0.25
#: Maximum time for the slots to return their jobs after that, and minimum time for their Spark job to end, s.
RETURN_S: Final = 10.0
MIN_WAIT_S: Final = 5.0
#: Interval at which the engine looks how many tasks Spark runs at the same time.
LOOK_S: Final = 2.0
#: Interval at which it reads why attempts have failed; each call of status() does so, too.
FAILURES_S: Final = 10.0


class LoopEngine:
    """Runs `slots` slots; without a number, one for each task that Spark runs at the same time, except for one.

    Then it starts further slots when there are more executors: with dynamic allocation only until the first slot runs,
    as slots would never release the executors that Spark starts for other queries. Spark Connect does not tell.
    """

    def __init__(self, spark: SparkSession, plan: SlotPlan, slots: int | None) -> None:
        self._spark = spark
        self._plan = plan
        self._given = slots
        self._on_driver = bool(frame_runners(plan.runner))
        self._tag = f"spark_bull-{plan.worker}"
        self._stopping = Event()
        self._is_paused = False
        self._groups: list[SlotGroup] = []
        self._changing = Lock()
        self._slots = 0
        self._has_warned = False
        #: How many tasks Spark runs at the same time; 0: there is no executor yet, or it is not known.
        self._tasks = 0
        self._failures = FailureLog(plan.worker)
        self._follower = DaemonThread("failures", self._follow_failures)

    def start(self) -> None:
        """Starts the Spark job. Raises OptionError if a function of the plan cannot be pickled."""
        plan = self._plan
        if self._on_driver:
            for _ in range(self._given or 1):
                self._add_slots(1)
            self._follower.start()
            return
        check_picklable(
            processor=plan.runner,
            setup=plan.setup,
            tracer=plan.tracer,
            meter=plan.meter,
            backoff_strategy=plan.policy.strategy,
        )
        warn_of_speculation(self._spark)
        if is_remote(self._spark):
            self._add_slots(self._given or max(1, parallelism(self._spark) - 1))
        else:
            self._tasks = tasks_at_once(self._spark)
            self._add_slots(self._wanted)
            DaemonThread("executors", self._follow_cluster).start()
        self._follower.start()

    @property
    def running(self) -> bool:
        return any(group.running for group in self._groups)

    @property
    def error(self) -> BaseException | None:
        """Why a group of slots has ended; the others are stopped then."""
        return next((group.error for group in self._groups if group.error is not None), None)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until all slots have finished, at most `timeout_s`; returns whether they have."""
        deadline = None if timeout_s is None else monotonic_s() + timeout_s
        while (group := next((group for group in self._groups if group.running), None)) is not None:
            left_s = None if deadline is None else deadline - monotonic_s()
            if left_s is not None and left_s <= 0:
                return False
            group.wait(left_s)
        return True

    def totals(self) -> dict[str, int]:
        """Returns the summed counters of the slots, and how many run and wait. Raises ConnectionLost."""
        groups = [group for group in self._groups if group.running]
        working = self._working(groups)
        waits = bool(groups) and not self._stopping.is_set()
        counters = counters_of([queue.handle for queue in self._plan.queues], self._plan.worker)
        return counters | {
            "slots": len(working),
            "busy": sum(one["state"] == "busy" for one in working),
            "waiting_slots": max(0, self._slots - len(working)) if waits else 0,
            "tasks": self._tasks,
            "restarts": sum(group.restarts for group in self._groups),
        }

    def _working(self, groups: Sequence[SlotGroup]) -> list[Slot]:
        """The reports of the slots of these groups that run. Raises ConnectionLost."""
        return [one for one in latest(self._reports()) if any(group.runs(one) for group in groups)]

    def stop(self, timeout_s: float) -> bool:
        """Waits up to `timeout_s` for the slots to finish, then interrupts them. Returns whether all finished."""
        deadline = monotonic_s() + timeout_s
        self._request_stop()
        while self.running and monotonic_s() < deadline:
            # Again, as Redis may have been away.
            self._request_stop()
            self.wait(UNBLOCK_INTERVAL_S)
        finished = not self.running
        if not finished:
            log.warning(
                "worker %s: slots did not finish within %g s; returning their jobs, and interrupting their Spark job",
                self._plan.worker,
                timeout_s,
            )
            self._return_jobs()
            cancel_tagged(self._spark, self._tag)
            self.wait(max(timeout_s, MIN_WAIT_S))
        elif self._follower.is_alive():
            self._follower.join(LOOK_S)
        return finished

    def _return_jobs(self) -> None:
        """Lets the slots return the jobs that they hold, as Spark kills their processes."""
        deadline, groups = monotonic_s() + RETURN_S, [group for group in self._groups if group.running]
        try:
            if all(group.request_end() for group in groups):
                while self.running and self._working(groups) and monotonic_s() < deadline:
                    self.wait(UNBLOCK_INTERVAL_S)
        except SparkBullError as error:
            log.warning("worker %s: its slots may not have returned their jobs: %s", self._plan.worker, error)

    def pause(self) -> None:
        """Lets the slots claim no more jobs. Raises ConnectionLost, and SparkBullError if they are to stop."""
        self._set_paused(True)

    def resume(self) -> None:
        """Lets the slots claim jobs again. Raises ConnectionLost, and SparkBullError if they are to stop."""
        self._set_paused(False)

    def _set_paused(self, is_paused: bool) -> None:
        if self._stopping.is_set():
            raise SparkBullError("expected a worker that runs, this one is about to stop")
        with self._changing:
            self._is_paused = is_paused
            for group in self._groups:
                if is_paused:
                    group.pause()
                else:
                    group.resume()

    def _request_stop(self) -> None:
        self._stopping.set()
        for group in self._groups:
            if group.running:
                group.request_stop()

    def _follow_failures(self) -> None:
        """Logs why jobs fail, until the slots have ended."""
        has_ended = False
        while not has_ended:
            has_ended = self.wait(FAILURES_S)
            try:
                self._reports()
            except SparkBullError as error:
                log.debug("worker %s: could not read its reports: %s", self._plan.worker, error)

    def _reports(self) -> list[Slot]:
        """The reports of the slots, after the failures in them were logged. Raises ConnectionLost."""
        reports = slots_of(self._plan.handle, self._plan.worker)
        self._failures.log_reports(reports)
        return reports

    def _follow_cluster(self) -> None:
        """Looks from time to time how many tasks Spark runs at the same time, until the slots are to stop."""
        is_dynamic = self._spark.conf.get("spark.dynamicAllocation.enabled", "false") == "true"
        may_grow = self._given is None
        self._warn_of_full_cluster(is_dynamic)
        while not self._stopping.wait(LOOK_S):
            try:
                has_run = bool(self._reports())
                self._tasks = tasks_at_once(self._spark)
                if may_grow:
                    self._add_slots(self._wanted - self._slots)
                    may_grow = not (is_dynamic and has_run)
                self._warn_of_full_cluster(is_dynamic)
            except SparkBullError:
                # Redis is away.
                continue
            except Exception as error:
                # The session has ended.
                log.info("worker %s: no longer looks for executors: %s", self._plan.worker, error)
                return

    @property
    def _wanted(self) -> int:
        return self._given or max(1, self._tasks - 1)

    def _add_slots(self, count: int) -> None:
        """Starts a Spark job with further slots, unless they are to stop. Raises ConnectionLost."""
        with self._changing:
            if count <= 0 or self._stopping.is_set():
                return
            numbers = range(self._slots, self._slots + count)
            kind = DriverSlot if self._on_driver else SlotGroup
            if self._groups and kind is SlotGroup:
                log.info("worker %s: starts %d more slots, as there are more executors", self._plan.worker, count)
            group = kind(self._spark, self._plan_of(numbers), numbers, self._tag, self._request_stop)
            if self._is_paused:
                group.pause()
            self._slots += count
            self._groups = [*self._groups, group]
            group.start()

    def _plan_of(self, numbers: range) -> SlotPlan:
        """The plan with a control key for these slots."""
        if numbers.start == 0:
            return self._plan

        def controlled(queue: SlotQueuePlan) -> SlotQueuePlan:
            control = queue.handle.keys.control(f"{self._plan.worker}:{numbers.start}")
            return replace(queue, claim_settings=replace(queue.claim_settings, control=control))

        return replace(self._plan, queues=tuple(map(controlled, self._plan.queues)))

    def _warn_of_full_cluster(self, is_dynamic: bool) -> None:
        """Logs a warning, once, if the slots leave no core to other queries; Spark may start executors for them."""
        if self._has_warned or is_dynamic or not 0 < self._tasks <= self._slots:
            return
        self._has_warned = True
        log.warning(
            "worker %s: its %d slots take all cores, as Spark runs %d tasks at the same time: other queries of the "
            "application wait until the worker stops%s; give fewer `slots`, or more cores",
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
