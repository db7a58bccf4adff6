"""A slot of a worker that runs on the driver, in a thread: its function of DataFrames starts Spark jobs."""

from __future__ import annotations

from dataclasses import replace

from spark_bull.errors import WorkerFailed
from spark_bull.spark.platform.job_tags import add_tag
from spark_bull.spark.process.frame_runner import WrongFrame, frame_runners
from spark_bull.spark.process.slot_group import SlotGroup
from spark_bull.worker.slot.slot import loop_of
from spark_bull.worker.slot.termination import return_jobs


class DriverSlot(SlotGroup):
    """Runs one slot, and starts it again when it fails. Jobs that its end leaves return to the queue as they were."""

    def _run_job(self) -> None:
        frame_runners(self._plan.runner)[0].check_spark()
        add_tag(self._spark, self._tag)
        (number,) = self._numbers
        loop = loop_of(replace(self._plan, run=self.restarts), number)
        try:
            loop.run()
        except BaseException as error:
            return_jobs(loop.queues)
            if isinstance(error, WrongFrame):
                raise WorkerFailed(f"worker {self._plan.worker} failed: {error}") from error
            raise
