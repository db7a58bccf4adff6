"""A group of slots of a worker, which is started again when it fails; the slot that is a thread of this program."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Event, Lock
from typing import Final

from spark_bull.core.error_text import described
from spark_bull.core.errors import SparkBullError, WorkerFailed
from spark_bull.core.threads import DaemonThread
from spark_bull.run.slot.slot import loop_of
from spark_bull.run.slot.slot_control import SlotControl
from spark_bull.run.slot.slot_plan import SlotPlan
from spark_bull.run.slot.slot_state import SetupFailed
from spark_bull.run.slot.status import Slot, slots_of
from spark_bull.run.slot.termination import return_jobs

log = logging.getLogger("spark_bull")

#: Number of consecutive failures, in which no slot has claimed a job, or the one that failed has not begun to work,
#: after which the worker fails.
MAX_FAILED_STARTS: Final = 3
MIN_PAUSE_S: Final = 1.0
MAX_PAUSE_S: Final = 30.0


class SlotGroup(ABC):
    """Runs the slots with these numbers from a thread, and starts them again when they fail.

    plan: what these slots are to do; its control key is for them only. on_error: called when they could not be started.
    """

    def __init__(self, plan: SlotPlan, numbers: range, on_error: Callable[[], None]) -> None:
        self._plan = plan
        self.numbers = numbers
        self._on_error = on_error
        self._control = SlotControl(plan)
        self._stopping = Event()
        self._is_paused = False
        self._pausing = Lock()
        self._thread = DaemonThread(plan.worker, self._run)
        self.error: BaseException | None = None
        self.restarts = 0

    @abstractmethod
    def _run_slots(self) -> None:
        """Runs the slots until they have stopped. Raises what has ended them; WorkerFailed: not to be repeated."""

    @abstractmethod
    def interrupt(self) -> None:
        """Ends slots that have not finished in time; they have returned their jobs."""

    def fail(self, error: WorkerFailed) -> None:
        """Ends the slots, which may not hear of a stop."""
        self.error = error
        self._stopping.set()
        self._on_error()
        self.interrupt()

    def start(self) -> None:
        """Starts the slots."""
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def wait(self, timeout_s: float | None = None) -> None:
        """Waits until all slots have finished, at most `timeout_s`."""
        self._thread.join(timeout_s)

    def request_stop(self) -> bool:
        """Lets the slots finish their jobs and stop; to be called again until they have, as Redis may be away.

        Returns whether Redis could be reached.
        """
        self._stopping.set()
        # A call of pause() may be under way.
        is_requested = self._control.request("stop")
        self._control.unblock(self.numbers)
        return is_requested

    @property
    def is_stopping(self) -> bool:
        """Whether the slots were requested to stop."""
        return self._stopping.is_set()

    def forget(self, reports: Sequence[Slot]) -> None:
        """Removes the reports of these slots, which have ended. Raises ConnectionLost.

        reports: of all slots of the worker.
        """
        self._control.forget([report for report in reports if report["slot"] in self.numbers])

    def withdraw_stop(self) -> None:
        """Lets others have the numbers of these slots, which have ended. Raises ConnectionLost."""
        self._control.withdraw_stop()

    def request_end(self) -> bool:
        """Lets the slots return the jobs that they hold. Returns whether Redis could be reached."""
        return self._control.request("end")

    def set_paused(self, is_paused: bool) -> None:
        """Lets the slots claim no jobs, or again. Raises ConnectionLost."""
        with self._pausing:
            if is_paused:
                self._control.pause()
            else:
                self._control.resume()
            self._is_paused = is_paused

    def runs(self, report: Slot) -> bool:
        """Whether a report is from a slot of this group that runs now."""
        return self.has_started(report) and report["state"] != "stopped"

    def has_started(self, report: Slot) -> bool:
        """Whether a report is from a slot of the last start of this group."""
        return report["slot"] in self.numbers and report["run"] == self.restarts

    def _run(self) -> None:
        pause_s, failed_starts = MIN_PAUSE_S, 0
        while not self._stopping.is_set():
            try:
                self._run_slots()
                return
            except Exception as error:
                if self._stopping.is_set():
                    return
                if isinstance(error, WorkerFailed) and not isinstance(error, SetupFailed):
                    self.error = error
                    self._on_error()
                    return
                worked = self._has_worked(error)
                failed_starts = 0 if worked else failed_starts + 1
                pause_s = MIN_PAUSE_S if worked else pause_s
                if failed_starts == MAX_FAILED_STARTS:
                    self.error = WorkerFailed(
                        f"the slots of worker {self._plan.worker} could not be started after {failed_starts} attempts, "
                        f"last error: {self._cause(error)}"
                    )
                    self.error.__cause__ = error
                    self._on_error()
                    return
                log.warning(
                    "worker %s: its slots failed, starting them again: %s", self._plan.worker, self._cause(error)
                )
            self.restarts += 1
            self._stopping.wait(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)

    def _has_worked(self, error: Exception) -> bool:
        """Whether the slots were started: one has claimed a job, and the one that failed has begun to work.

        A slot that fails whenever it begins must end the worker, although the others claim jobs.
        """
        try:
            reports = slots_of(self._plan.handle, self._plan.worker)
        except SparkBullError:
            return True
        of_last_run = list(filter(self.has_started, reports))
        began = {one["slot"] for one in of_last_run if one["state"] != "starting"}
        number = self._failed_slot(error)
        if isinstance(error, SetupOfSlotFailed):
            return number in began
        return any(one["claimed"] for one in of_last_run) and (number is None or number in began)

    def _failed_slot(self, error: Exception) -> int | None:
        """The number of the slot that has failed the others; None if it is not known."""
        return error.slot if isinstance(error, SetupOfSlotFailed) else None

    def _cause(self, error: Exception) -> str:
        """The line of an error that says what has failed."""
        return (str(error) if isinstance(error, SetupFailed) else described(error)).splitlines()[0]


class SetupOfSlotFailed(SetupFailed):
    """The setup of this slot has failed, and the others of its group have stopped."""

    def __init__(self, slot: int, message: str) -> None:
        super().__init__(message)
        self.slot = slot


class ThreadSlot(SlotGroup):
    """Runs one slot, and starts it again when it fails. Jobs that its end leaves return to the queue as they were."""

    def interrupt(self) -> None:
        """Has no effect: Python cannot end a thread."""

    def _run_slots(self) -> None:
        (number,) = self.numbers
        loop = loop_of(replace(self._plan, run=self.restarts), number, in_main_thread=False)
        try:
            loop.run()
        except BaseException:
            return_jobs(loop.queues)
            raise
