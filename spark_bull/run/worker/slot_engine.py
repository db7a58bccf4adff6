"""Runs the slots of a worker in groups."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from threading import Event, Lock
from typing import Any, Final

from spark_bull.core.clock import monotonic_s
from spark_bull.core.errors import SparkBullError
from spark_bull.core.threads import DaemonThread
from spark_bull.run.slot.slot_plan import SlotPlan, SlotQueuePlan
from spark_bull.run.slot.slot_report import DamageLog, FailureLog
from spark_bull.run.slot.status import Slot, counters_of, damage_in, latest, slots_of
from spark_bull.run.worker.slot_group import SlotGroup

log = logging.getLogger("spark_bull")

#: Interval at which stop() unblocks idle slots.
UNBLOCK_INTERVAL_S: Final = 0.25
#: Maximum time for the slots to return their jobs after that, and minimum time for them to end when interrupted, s.
RETURN_S: Final = 10.0
MIN_WAIT_S: Final = 5.0
#: Interval at which the engine reads why attempts have failed; each call of status() does so, too.
FAILURES_S: Final = 10.0
#: Maximum time for the last of these reads, s.
LAST_READ_S: Final = 2.0


class SlotEngine(ABC):
    """Starts, stops, pauses and counts slots. Where they run is up to its kinds."""

    def __init__(self, plan: SlotPlan) -> None:
        self._plan = plan
        self._stopping = Event()
        self._is_paused = False
        self._groups: list[SlotGroup] = []
        self._changing = Lock()
        self._slots = 0
        self._failures = FailureLog(f"worker {plan.worker}")
        self._damage = DamageLog(plan.worker)
        self._follower = DaemonThread("failures", self._follow_failures)

    def start(self) -> None:
        """Starts the slots. Raises OptionError if a function of the plan cannot be called where they run."""
        self._start_slots()
        self._follower.start()

    @abstractmethod
    def _start_slots(self) -> None:
        """Starts the first groups. Raises OptionError."""

    @abstractmethod
    def _new_group(self, plan: SlotPlan, numbers: range) -> SlotGroup:
        """A group of slots that has not been started; its plan has a control key for it."""

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

    def totals(self) -> dict[str, Any]:
        """Returns the summed counters of the slots, and how many run. Raises ConnectionLost."""
        working = running_of(self._running_groups, self._reports())
        counters = counters_of([queue.handle for queue in self._plan.queues], self._plan.worker)
        return counters | {
            "slots": len(working),
            "busy": sum(one["state"] == "busy" for one in working),
            "restarts": sum(group.restarts for group in self._groups),
            "damaged": damage_in(working),
        }

    @property
    def _running_groups(self) -> list[SlotGroup]:
        return [group for group in self._groups if group.running]

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
                "worker %s: slots did not finish within %g s; returning their jobs, and interrupting them",
                self._plan.worker,
                timeout_s,
            )
            self._return_jobs()
            for group in self._running_groups:
                group.interrupt()
            self.wait(max(timeout_s, MIN_WAIT_S))
        elif self._follower.is_alive():
            self._follower.join(LAST_READ_S)
        return finished

    def _return_jobs(self) -> None:
        """Lets the slots return the jobs that they hold, as they are to be interrupted."""
        deadline, groups = monotonic_s() + RETURN_S, self._running_groups
        try:
            if all(group.request_end() for group in groups):
                while self.running and running_of(groups, self._reports()) and monotonic_s() < deadline:
                    self.wait(UNBLOCK_INTERVAL_S)
        except SparkBullError as error:
            log.warning("worker %s: its slots may not have returned their jobs: %s", self._plan.worker, error)

    def set_paused(self, is_paused: bool) -> None:
        """Lets the slots claim no jobs, or again. Raises ConnectionLost, and SparkBullError if they are to stop."""
        if self._stopping.is_set():
            raise SparkBullError("expected a worker that runs, this one is about to stop")
        with self._changing:
            self._is_paused = is_paused
            for group in self._groups:
                group.set_paused(is_paused)

    def _request_stop(self) -> None:
        self._stopping.set()
        for group in self._groups:
            if group.running:
                group.request_stop()

    def _follow_failures(self) -> None:
        """Logs why jobs fail, and which queues are damaged, until the slots have ended."""
        has_ended = False
        while not has_ended:
            has_ended = self.wait(FAILURES_S)
            try:
                self._reports()
            except SparkBullError as error:
                log.debug("worker %s: could not read its reports: %s", self._plan.worker, error)

    def _reports(self) -> list[Slot]:
        """The reports of the slots, after the failures and the damage in them were logged. Raises ConnectionLost."""
        reports = slots_of(self._plan.handle, self._plan.worker)
        self._failures.log_reports(reports)
        self._damage.log_reports(running_of(self._running_groups, reports))
        return reports

    def _add_slots(self, count: int) -> None:
        """Starts a group of further slots, unless they are to stop. Raises ConnectionLost."""
        with self._changing:
            if count <= 0 or self._stopping.is_set():
                return
            self._start_group(range(self._slots, self._slots + count))
            self._slots += count

    def _start_group(self, numbers: range) -> None:
        """Starts the slots with these numbers, while `_changing` is held. Raises ConnectionLost."""
        group = self._new_group(self._plan_of(numbers), numbers)
        if self._is_paused:
            group.set_paused(True)
        self._groups = [*self._groups, group]
        group.start()

    def _plan_of(self, numbers: range) -> SlotPlan:
        """The plan with a control key for these slots."""
        if numbers.start == 0:
            return self._plan

        def controlled(queue: SlotQueuePlan) -> SlotQueuePlan:
            control = queue.handle.keys.control(f"{self._plan.worker}:{numbers.start}")
            return replace(queue, work_settings=queue.work_settings._replace(control=control))

        return replace(self._plan, queues=tuple(map(controlled, self._plan.queues)))


def running_of(groups: Sequence[SlotGroup], reports: Sequence[Slot]) -> list[Slot]:
    """Those reports that are the latest of slots of these groups that run."""
    return [one for one in latest(reports) if any(group.runs(one) for group in groups)]
