"""A slot of a worker that runs in a thread of this program."""

from __future__ import annotations

from dataclasses import replace

from spark_bull.run.slot.slot import loop_of
from spark_bull.run.slot.termination import return_jobs
from spark_bull.run.worker.slot_group import SlotGroup


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
