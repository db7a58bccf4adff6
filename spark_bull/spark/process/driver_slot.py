"""A slot of a worker that runs on the driver, in a thread: its function of DataFrames starts Spark jobs."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import SparkSession

from spark_bull.errors import WorkerFailed
from spark_bull.process.thread_slot import ThreadSlot
from spark_bull.spark.platform.job_tags import add_tag, cancel_tagged
from spark_bull.spark.platform.spark_errors import first_line
from spark_bull.spark.process.frame_runner import WrongFrame, frame_runners
from spark_bull.worker.slot.slot_plan import SlotPlan
from spark_bull.worker.slot.slot_state import SetupFailed


class DriverSlot(ThreadSlot):
    """tag: of the Spark jobs of its functions."""

    def __init__(
        self, spark: SparkSession, plan: SlotPlan, numbers: range, tag: str, on_error: Callable[[], None]
    ) -> None:
        super().__init__(plan, numbers, on_error)
        self._spark = spark
        self._tag = tag

    def interrupt(self) -> None:
        cancel_tagged(self._spark, self._tag)

    def _run_slots(self) -> None:
        frame_runners(self._plan.runner)[0].check_spark()
        add_tag(self._spark, self._tag)
        try:
            super()._run_slots()
        except WrongFrame as error:
            raise WorkerFailed(f"worker {self._plan.worker} failed: {error}") from error

    def _cause(self, error: Exception) -> str:
        return super()._cause(error) if isinstance(error, SetupFailed) else first_line(error)
