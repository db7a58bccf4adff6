"""A group of slots of a worker that run in Spark: one Spark job, with a long-running task per slot."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from spark_bull.core.error_text import trace_of
from spark_bull.run.slot.slot import run_slot
from spark_bull.run.slot.slot_control import SlotControl
from spark_bull.run.slot.slot_plan import SlotPlan
from spark_bull.run.slot.slot_state import SetupFailed
from spark_bull.run.worker.slot_group import SetupOfSlotFailed, SlotGroup
from spark_bull.spark.platform.datasource import begin_task
from spark_bull.spark.platform.jvm import add_tag, cancel_tagged, is_remote
from spark_bull.spark.platform.spark_errors import first_line

#: For how long the tries of a task together wait for Redis.
REACH_MS: Final = 20_000
_SCHEMA: Final = "slot INT, error STRING"
#: What Spark says about the task that has failed a Spark job.
_TASK: Final = re.compile(r"Task (?P<number>\d+) in stage \S+ failed \d+ times")
_LOCAL: Final = re.compile(r"local(\[[^,\]]*(,\s*(?P<tries>\d+))?\])?")


def run_slots(
    plan: SlotPlan, task_tries: int, is_patient: bool, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Runs in a Spark task: runs the loop of each slot number that it receives.

    A slot that does not reach Redis fails its task, so that the driver gets to know why. The last try of the task goes
    on, if `is_patient`: its failure would cancel the tasks of the other slots.

    When `setup` fails and Spark would not try the task again, Spark would cancel the tasks of the other slots. So they
    are asked to stop and finish their jobs, and the error is in the row of this slot.
    """
    begin_task()
    if not is_patient or _tries() < task_tries:
        _reach(plan, task_tries)
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


def _reach(plan: SlotPlan, task_tries: int) -> None:
    """Raises ConnectionLost if this machine does not reach the Redis of the slots' reports.

    All tries of a task together take REACH_MS.
    """
    connection = plan.handle.connection
    brief = connection.having(retry_ms=min(connection.settings.retry_ms, REACH_MS // task_tries))
    brief.call("EXISTS", plan.handle.keys.slots(plan.worker))
    if brief.settings != connection.settings:
        brief.close()


def _tries() -> int:
    """How often Spark has tried this task."""
    context = TaskContext.get()
    return 1 if context is None else context.attemptNumber() + 1


class TaggedSlots(SlotGroup):
    """A group of slots whose Spark jobs have a tag of their own, by which `interrupt` cancels them."""

    def __init__(
        self, spark: SparkSession, plan: SlotPlan, numbers: range, tag: str, on_error: Callable[[], None]
    ) -> None:
        super().__init__(plan, numbers, on_error)
        self._spark = spark
        self.tag = tag

    def interrupt(self) -> None:
        cancel_tagged(self._spark, self.tag)

    def _cause(self, error: Exception) -> str:
        return super()._cause(error) if isinstance(error, SetupFailed) else first_line(error)


class TaskSlots(TaggedSlots):
    """Runs the slots with these numbers as one Spark job, which has the tag."""

    def _run_slots(self) -> None:
        """Runs the slots until they have stopped. Raises SetupFailed if one has stopped the others."""
        add_tag(self._spark, self.tag)
        slots = self._spark.range(self.numbers.start, self.numbers.stop, 1, len(self.numbers))
        conf = self._spark.conf
        tries = task_tries(conf.get("spark.master", "") or "", conf.get("spark.task.maxFailures", "4") or "4")
        # Only where there is a SparkContext, the driver reads the errors of tasks.
        run = partial(run_slots, replace(self._plan, run=self.restarts), tries, not is_remote(self._spark))
        failed = [row for row in slots.mapInArrow(run, _SCHEMA).collect() if row.error is not None]
        if failed:
            self._withdraw_stop()
            raise SetupOfSlotFailed(failed[0].slot, failed[0].error)

    def _withdraw_stop(self) -> None:
        """Withdraws the request of a slot that the others stop."""
        with self._pausing:
            self._control.withdraw_stop()
            if self._is_paused:
                self._control.pause()

    def _failed_slot(self, error: Exception) -> int | None:
        """The number of the slot that has failed the Spark job; None if its error does not say that."""
        found = None if isinstance(error, SetupOfSlotFailed) else _TASK.search(str(error))
        return self.numbers.start + int(found["number"]) if found else super()._failed_slot(error)


def task_tries(master: str, max_failures: str) -> int:
    """How often Spark tries a task until it fails the Spark job; in local mode, the master says so.

    max_failures: spark.task.maxFailures.
    """
    local = _LOCAL.fullmatch(master)
    return int(local["tries"] or 1) if local else int(max_failures)
