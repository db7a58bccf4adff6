"""The engine `loop`: a long Spark task per slot, each with a WorkerLoop in it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from threading import Event, Thread
from typing import Final

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from spark_bull.clock import epoch_ms, monotonic_s
from spark_bull.errors import OptionError, SparkBullError, WorkerFailed
from spark_bull.spark.spark_errors import first_line
from spark_bull.worker.loop import SlotPlan, WorkerLoop
from spark_bull.worker.status import slots_of, totals

log = logging.getLogger("spark_bull")

#: Spark's job is given up when it fails so often in a row before any slot has started.
MAX_FALSE_STARTS: Final = 3
FIRST_PAUSE_S: Final = 1.0
MAX_PAUSE_S: Final = 30.0
#: How long the key that stops the slots stays, for slots that see it late.
CONTROL_TTL_MS: Final = 3_600_000
#: How often slots that wait for jobs are woken until they have seen that it is time to stop.
WAKE_S: Final = 0.25
_SCHEMA: Final = "slot INT, claimed LONG, completed LONG, failed LONG, retried LONG, returned LONG, lost LONG"


def run_slots(plan: SlotPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What one Spark task does: works as the slots whose numbers it gets, one after the other."""
    for batch in batches:
        for slot in batch.column(0).to_pylist():
            stats = WorkerLoop(plan, slot).run()
            row = {"slot": slot, **asdict(stats)}
            arrays = {n: pa.array([v], pa.int32() if n == "slot" else pa.int64()) for n, v in row.items()}
            yield pa.RecordBatch.from_pydict(arrays)


class LoopEngine:
    """Runs `slots` slots as one Spark job, in a thread; starts it again when tasks or executors die."""

    def __init__(self, spark: SparkSession, plan: SlotPlan, slots: int) -> None:
        self._spark = spark
        self._plan = plan
        self._slots = slots
        self._tag = f"spark_bull-{plan.worker}"
        self._stopping = Event()
        self._thread = Thread(target=self._serve, name=f"spark-bull-{plan.worker}", daemon=True)
        self.error: BaseException | None = None
        self.restarts = 0

    def start(self) -> None:
        """Raises OptionError for a processor that can't travel to the executors."""
        check_picklable(self._plan)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until all slots are done, `timeout_s` at most; returns whether they are."""
        self._thread.join(timeout_s)
        return not self.running

    def totals(self) -> dict[str, int]:
        """What the slots have done so far. Raises ConnectionLost."""
        return totals(slots_of(self._plan.handle, self._plan.worker)) | {"restarts": self.restarts}

    def stop(self, grace_s: float) -> bool:
        """Lets slots finish what they have claimed; after `grace_s` they are cut off. Returns whether all finished."""
        self._stopping.set()
        deadline, asked = monotonic_s() + grace_s, self._ask_to_stop()
        while self.running and monotonic_s() < deadline:
            asked = asked or self._ask_to_stop()
            self._wake()
            self.wait(WAKE_S)
        finished = not self.running
        if not finished:
            log.warning("worker %s: not all slots finished within %g s and are cut off", self._plan.worker, grace_s)
            self._spark.interruptTag(self._tag)
            self.wait(grace_s)
        return finished

    def _serve(self) -> None:
        pause_s, false_starts = FIRST_PAUSE_S, 0
        while not self._stopping.is_set():
            started = epoch_ms()
            try:
                self._run_job()
                return
            except Exception as error:
                if self._stopping.is_set():
                    return
                worked = self._has_started_since(started)
                false_starts = 0 if worked else false_starts + 1
                pause_s = FIRST_PAUSE_S if worked else pause_s
                if false_starts == MAX_FALSE_STARTS:
                    self.error = WorkerFailed(
                        f"the slots of worker {self._plan.worker} could not be started {false_starts} times in a row, "
                        f"the last time because: {first_line(error)}"
                    )
                    self.error.__cause__ = error
                    return
                log.warning("worker %s: Spark's job failed, starting again: %s", self._plan.worker, first_line(error))
            self.restarts += 1
            self._stopping.wait(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)

    def _run_job(self) -> None:
        self._spark.addTag(self._tag)
        slots = self._spark.range(0, self._slots, 1, self._slots)
        # A slot that is still at work must not be started a second time, so no speculation; Spark reads that per job.
        slots.mapInArrow(partial(run_slots, self._plan), _SCHEMA).collect()

    def _has_started_since(self, moment: int) -> bool:
        try:
            told = slots_of(self._plan.handle, self._plan.worker)
        except SparkBullError:
            return True
        return any(int(slot["started"]) >= moment - 60_000 and slot["claimed"] for slot in told)

    def _ask_to_stop(self) -> bool:
        return self._try("SET", self._plan.claim_settings.control, "stop", "PX", CONTROL_TTL_MS)

    def _wake(self) -> None:
        """Ends the waiting of idle slots; where Redis forbids that, they see it by themselves a little later."""
        try:
            idle = [slot for slot in slots_of(self._plan.handle, self._plan.worker) if slot["state"] == "idle"]
        except SparkBullError:
            return
        for slot in idle:
            if slot["client"]:
                self._try("CLIENT", "UNBLOCK", slot["client"])

    def _try(self, *command: str | int) -> bool:
        try:
            self._plan.handle.connection.call(*command)
        except SparkBullError as error:
            log.warning("worker %s: %s failed: %s", self._plan.worker, command[0], error)
            return False
        return True


def check_picklable(plan: SlotPlan) -> None:
    """Raises OptionError when a processor can't travel to the executors."""
    try:
        cloudpickle.dumps(plan)
    except Exception as error:
        raise OptionError(
            "expected a `processor` that can be sent to the executors; this one can't be pickled "
            f"({type(error).__name__}: {error}): open connections, locks, files and the session inside it, not outside"
        ) from error
