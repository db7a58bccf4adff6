"""A group of slots of a worker: one Spark job, with a long-running task per slot."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from threading import Event, Lock
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from spark_bull.error_text import trace_of
from spark_bull.errors import SparkBullError, WorkerFailed
from spark_bull.spark.platform.job_tags import add_tag
from spark_bull.spark.platform.spark_errors import first_line
from spark_bull.threads import DaemonThread
from spark_bull.worker.slot.slot import run_slot
from spark_bull.worker.slot.slot_control import SlotControl
from spark_bull.worker.slot.slot_plan import SlotPlan
from spark_bull.worker.slot.slot_state import SetupFailed
from spark_bull.worker.slot.status import Slot, slots_of

log = logging.getLogger("spark_bull")

#: Number of consecutive failures of the Spark job, in which no slot has claimed a job, or the one that failed has not
#: begun to work, after which the worker fails.
MAX_FAILED_STARTS: Final = 3
MIN_PAUSE_S: Final = 1.0
MAX_PAUSE_S: Final = 30.0
_SCHEMA: Final = "slot INT, error STRING"
#: What Spark says about the task that has failed a Spark job.
_TASK: Final = re.compile(r"Task (?P<number>\d+) in stage \S+ failed \d+ times")
_LOCAL: Final = re.compile(r"local(\[[^,\]]*(,\s*(?P<tries>\d+))?\])?")


def run_slots(plan: SlotPlan, task_tries: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs in a Spark task: runs the loop of each slot number that it receives.

    When `setup` fails and Spark would not try the task again, it would cancel the tasks of the other slots: they are
    asked to stop, so that they finish their jobs, and the error is in the row of this slot.
    """
    for batch in batches:
        for slot in batch.column(0).to_pylist():
            error = None
            try:
                run_slot(plan, slot)
            except SetupFailed as failed:
                if _tries() < task_tries or not SlotControl(plan).request("stop"):
                    raise
                SlotControl(plan).unblock()
                error = f"{failed}\n{trace_of(failed)}"
            row = [pa.array([slot], pa.int32()), pa.array([error], pa.string())]
            yield pa.RecordBatch.from_arrays(row, ["slot", "error"])


def _tries() -> int:
    """How often Spark has tried this task."""
    context = TaskContext.get()
    return 1 if context is None else context.attemptNumber() + 1


class SlotGroup:
    """Runs the slots with these numbers as one Spark job in a thread, and restarts the job when it fails.

    plan: what these slots are to do; its control key is for them only. tag: of the Spark job. on_error: called when
    they could not be started.
    """

    def __init__(
        self, spark: SparkSession, plan: SlotPlan, numbers: range, tag: str, on_error: Callable[[], None]
    ) -> None:
        self._spark = spark
        self._plan = plan
        self._numbers = numbers
        self._tag = tag
        self._on_error = on_error
        self._control = SlotControl(plan)
        self._stopping = Event()
        self._is_paused = False
        self._pausing = Lock()
        self._thread = DaemonThread(plan.worker, self._run)
        self.error: BaseException | None = None
        self.restarts = 0

    def start(self) -> None:
        """Starts the Spark job."""
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def wait(self, timeout_s: float | None = None) -> None:
        """Waits until all slots have finished, at most `timeout_s`."""
        self._thread.join(timeout_s)

    def request_stop(self) -> None:
        """Lets the slots finish their jobs and stop; to be called again until they have, as Redis may be away."""
        self._stopping.set()
        # A call of pause() may be under way.
        self._control.request("stop")
        self._control.unblock()

    def request_end(self) -> bool:
        """Lets the slots return the jobs that they hold. Returns whether Redis could be reached."""
        return self._control.request("end")

    def pause(self) -> None:
        """Lets the slots claim no more jobs. Raises ConnectionLost."""
        with self._pausing:
            self._control.pause()
            self._is_paused = True

    def resume(self) -> None:
        """Lets the slots claim jobs again. Raises ConnectionLost."""
        with self._pausing:
            self._control.resume()
            self._is_paused = False

    def runs(self, report: Slot) -> bool:
        """Whether a report is that of a slot of this group that Spark runs now."""
        return report["slot"] in self._numbers and report["run"] == self.restarts and report["state"] != "stopped"

    def _run(self) -> None:
        pause_s, failed_starts = MIN_PAUSE_S, 0
        while not self._stopping.is_set():
            try:
                self._run_job()
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
                        f"last error: {_cause(error)}"
                    )
                    self.error.__cause__ = error
                    self._on_error()
                    return
                log.warning("worker %s: its slots failed, starting them again: %s", self._plan.worker, _cause(error))
            self.restarts += 1
            self._stopping.wait(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)

    def _run_job(self) -> None:
        """Runs the slots until they have stopped. Raises SetupFailed if one has stopped the others."""
        add_tag(self._spark, self._tag)
        slots = self._spark.range(self._numbers.start, self._numbers.stop, 1, len(self._numbers))
        conf = self._spark.conf
        tries = task_tries(conf.get("spark.master", "") or "", conf.get("spark.task.maxFailures", "4") or "4")
        run = partial(run_slots, replace(self._plan, run=self.restarts), tries)
        failed = [row for row in slots.mapInArrow(run, _SCHEMA).collect() if row.error is not None]
        if failed:
            self._withdraw_stop()
            raise _SetupOfSlotFailed(failed[0].slot, failed[0].error)

    def _withdraw_stop(self) -> None:
        """Withdraws the request of a slot that the others stop."""
        with self._pausing:
            self._control.withdraw_stop()
            if self._is_paused:
                self._control.pause()

    def _has_worked(self, error: Exception) -> bool:
        """Whether the last Spark job was started: a slot has claimed a job, and the one that failed has begun to work.

        A slot that fails whenever it begins must end the worker, although the others claim jobs.
        """
        try:
            reports = slots_of(self._plan.handle, self._plan.worker)
        except SparkBullError:
            return True
        of_last_run = [one for one in reports if one["slot"] in self._numbers and one["run"] == self.restarts]
        began = {one["slot"] for one in of_last_run if one["state"] != "starting"}
        number = self._failed_slot(error)
        if isinstance(error, _SetupOfSlotFailed):
            return number in began
        return any(one["claimed"] for one in of_last_run) and (number is None or number in began)

    def _failed_slot(self, error: Exception) -> int | None:
        """The number of the slot that has failed the Spark job; None if its error does not say that."""
        if isinstance(error, _SetupOfSlotFailed):
            return error.slot
        found = _TASK.search(str(error))
        return self._numbers.start + int(found["number"]) if found else None


class _SetupOfSlotFailed(SetupFailed):
    """The setup of this slot has failed, and the others of its group have stopped."""

    def __init__(self, slot: int, message: str) -> None:
        super().__init__(message)
        self.slot = slot


def _cause(error: Exception) -> str:
    """The line of an error that says what has failed."""
    return str(error).splitlines()[0] if isinstance(error, SetupFailed) else first_line(error)


def task_tries(master: str, max_failures: str) -> int:
    """How often Spark tries a task until it fails the Spark job; in local mode, the master says so.

    max_failures: spark.task.maxFailures.
    """
    local = _LOCAL.fullmatch(master)
    return int(local["tries"] or 1) if local else int(max_failures)
