"""The engine `loop`: one long-running Spark task per slot, which runs a WorkerLoop."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from threading import Event, Lock, Thread
from typing import Final

import pyarrow as pa
from pyspark import TaskContext, cloudpickle
from pyspark.sql import SparkSession

from spark_bull.clock import monotonic_s
from spark_bull.error_text import trace_of
from spark_bull.errors import OptionError, SparkBullError, WorkerFailed
from spark_bull.spark.spark_errors import first_line
from spark_bull.worker.slot import run_slot
from spark_bull.worker.slot_control import SlotControl
from spark_bull.worker.slot_plan import SlotPlan
from spark_bull.worker.slot_state import SetupFailed
from spark_bull.worker.slot_stats import SlotStats
from spark_bull.worker.status import slots_of, totals

log = logging.getLogger("spark_bull")

#: Number of consecutive failures of the Spark job before any slot has claimed a job, or before the `setup` of all slots
#: has succeeded, after which the worker fails.
MAX_FAILED_STARTS: Final = 3
MIN_PAUSE_S: Final = 1.0
MAX_PAUSE_S: Final = 30.0
#: Interval at which stop() unblocks idle slots.
UNBLOCK_INTERVAL_S: Final = 0.25
_SCHEMA: Final = (
    "slot INT, claimed LONG, completed LONG, failed LONG, retried LONG, returned LONG, lost LONG, error STRING"
)
_ARROW: Final = {"slot": pa.int32(), "error": pa.string()}
_LOCAL: Final = re.compile(r"local(\[[^,\]]*(,\s*(?P<tries>\d+))?\])?")


def run_slots(plan: SlotPlan, task_tries: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs in a Spark task: runs the loop of each slot number that it receives.

    When `setup` fails and Spark would not try the task again, but cancel those of the other slots, these are stopped,
    so that they finish their jobs; the error is in the row of this slot.
    """
    for batch in batches:
        for slot in batch.column(0).to_pylist():
            error = None
            try:
                stats = run_slot(plan, slot)
            except SetupFailed as failed:
                if _tries() < task_tries or not SlotControl(plan).request_stop():
                    raise
                SlotControl(plan).unblock()
                stats, error = SlotStats(), f"{failed}\n{trace_of(failed)}"
            row = {"slot": slot, **asdict(stats), "error": error}
            arrays = {name: pa.array([value], _ARROW.get(name, pa.int64())) for name, value in row.items()}
            yield pa.RecordBatch.from_pydict(arrays)


def _tries() -> int:
    """How often Spark has tried this task."""
    context = TaskContext.get()
    return 1 if context is None else context.attemptNumber() + 1


class LoopEngine:
    """Runs `slots` slots as one Spark job in a thread, and restarts the job when it fails."""

    def __init__(self, spark: SparkSession, plan: SlotPlan, slots: int) -> None:
        self._spark = spark
        self._plan = plan
        self._slots = slots
        self._tag = f"spark_bull-{plan.worker}"
        self._control = SlotControl(plan)
        self._stopping = Event()
        self._is_paused = False
        self._pausing = Lock()
        self._thread = Thread(target=self._run_until_stopped, name=f"spark-bull-{plan.worker}", daemon=True)
        self.error: BaseException | None = None
        self.restarts = 0

    def start(self) -> None:
        """Starts the Spark job. Raises OptionError if a function of the plan cannot be pickled."""
        check_picklable(self._plan)
        warn_of_speculation(self._spark)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until all slots have finished, at most `timeout_s`; returns whether they have."""
        self._thread.join(timeout_s)
        return not self.running

    def totals(self) -> dict[str, int]:
        """Returns the summed counters of the slots. Raises ConnectionLost."""
        return totals(slots_of(self._plan.handle, self._plan.worker)) | {"restarts": self.restarts}

    def stop(self, grace_s: float) -> bool:
        """Waits up to `grace_s` for the slots to finish, then interrupts them. Returns whether all finished."""
        self._stopping.set()
        deadline = monotonic_s() + grace_s
        self._control.request_stop()
        while self.running and monotonic_s() < deadline:
            # Again, as Redis may have been away, and a call of pause() may have been under way.
            self._control.request_stop()
            self._control.unblock()
            self.wait(UNBLOCK_INTERVAL_S)
        finished = not self.running
        if not finished:
            log.warning(
                "worker %s: slots did not finish within %g s; interrupting their Spark job", self._plan.worker, grace_s
            )
            self._spark.interruptTag(self._tag)
            self.wait(grace_s)
        return finished

    def pause(self) -> None:
        """Lets the slots claim no further jobs. Raises ConnectionLost, and SparkBullError if they are to stop."""
        self._check_not_stopping()
        with self._pausing:
            self._control.pause()
            self._is_paused = True

    def resume(self) -> None:
        """Lets the slots claim jobs again. Raises ConnectionLost, and SparkBullError if they are to stop."""
        self._check_not_stopping()
        with self._pausing:
            self._control.resume()
            self._is_paused = False

    def _check_not_stopping(self) -> None:
        if self._stopping.is_set():
            raise SparkBullError("expected a worker that runs, this one is about to stop")

    def _run_until_stopped(self) -> None:
        pause_s, failed_starts = MIN_PAUSE_S, 0
        while not self._stopping.is_set():
            try:
                self._run_job()
                return
            except Exception as error:
                if self._stopping.is_set():
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
                    return
                log.warning("worker %s: its slots failed, starting them again: %s", self._plan.worker, _cause(error))
            self.restarts += 1
            self._stopping.wait(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)

    def _run_job(self) -> None:
        """Runs the slots until they have stopped. Raises SetupFailed if one has stopped the others."""
        self._spark.addTag(self._tag)
        slots = self._spark.range(0, self._slots, 1, self._slots)
        conf = self._spark.conf
        tries = task_tries(conf.get("spark.master", "") or "", conf.get("spark.task.maxFailures", "4") or "4")
        run = partial(run_slots, replace(self._plan, run=self.restarts), tries)
        errors = [row.error for row in slots.mapInArrow(run, _SCHEMA).collect() if row.error is not None]
        if errors:
            self._withdraw_stop()
            raise SetupFailed(errors[0])

    def _withdraw_stop(self) -> None:
        """Withdraws the request of a slot that the others stop."""
        with self._pausing:
            self._control.withdraw_stop()
            if self._is_paused:
                self._control.pause()

    def _has_worked(self, error: Exception) -> bool:
        """Whether the slots of the last Spark job have started: all of them if `setup` failed, else one."""
        try:
            reports = slots_of(self._plan.handle, self._plan.worker)
        except SparkBullError:
            return True
        of_last_run = [report for report in reports if report["run"] == self.restarts]
        if isinstance(error, SetupFailed):
            return len({report["slot"] for report in of_last_run}) == self._slots
        return any(report["claimed"] for report in of_last_run)


def _cause(error: Exception) -> str:
    """The line of an error that says what has failed."""
    return str(error).splitlines()[0] if isinstance(error, SetupFailed) else first_line(error)


def task_tries(master: str, max_failures: str) -> int:
    """How often Spark tries a task until it fails the Spark job; in local mode, the master says so.

    max_failures: spark.task.maxFailures.
    """
    local = _LOCAL.fullmatch(master)
    return int(local["tries"] or 1) if local else int(max_failures)


def warn_of_speculation(spark: SparkSession) -> None:
    """Logs a warning if Spark may start a slot twice."""
    if spark.conf.get("spark.speculation", "false") == "true":
        log.warning(
            "expected spark.speculation=false: when a worker stops, Spark may start a second copy of a slot whose jobs "
            "still run, and kill the first one; its jobs are processed again"
        )


def check_picklable(plan: SlotPlan) -> None:
    """Raises OptionError if a function of the plan cannot be pickled."""
    parts = {
        "processor": plan.runner,
        "setup": plan.setup,
        "tracer": plan.tracer,
        "backoff_strategy": plan.policy.strategy,
    }
    for name, part in parts.items():
        try:
            cloudpickle.dumps(part)
        except Exception as error:
            raise OptionError(
                f"expected `{name}` to be picklable, as it is sent to the executors, "
                f"got {type(error).__name__}: {error}; open connections, locks and files inside the function"
            ) from error
