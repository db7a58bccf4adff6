"""A slot of a worker that runs on the driver, in a thread: its function of DataFrames starts Spark jobs."""

from __future__ import annotations

from spark_bull.errors import WorkerFailed
from spark_bull.process.thread_slot import ThreadSlot
from spark_bull.spark.platform.job_tags import add_tag
from spark_bull.spark.process.frame_runner import WrongFrame, frame_runners
from spark_bull.spark.process.tagged_slots import TaggedSlots


class DriverSlot(TaggedSlots, ThreadSlot):
    """Its tag is that of the Spark jobs of its functions."""

    def _run_slots(self) -> None:
        frame_runners(self._plan.runner)[0].check_spark()
        add_tag(self._spark, self.tag)
        try:
            super()._run_slots()
        except WrongFrame as error:
            raise WorkerFailed(f"worker {self._plan.worker} failed: {error}") from error
