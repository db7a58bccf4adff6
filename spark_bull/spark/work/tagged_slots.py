"""A group of slots whose Spark jobs have a tag of their own, by which they are cancelled."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import SparkSession

from spark_bull.run.slot.slot_plan import SlotPlan
from spark_bull.run.slot.slot_state import SetupFailed
from spark_bull.run.worker.slot_group import SlotGroup
from spark_bull.spark.platform.job_tags import cancel_tagged
from spark_bull.spark.platform.spark_errors import first_line


class TaggedSlots(SlotGroup):
    """tag: of the Spark jobs of the group."""

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
