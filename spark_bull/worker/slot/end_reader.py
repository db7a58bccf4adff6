"""Returns the jobs of a slot when its worker no longer waits for them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from spark_bull.errors import SparkBullError
from spark_bull.threads import PollingThread
from spark_bull.worker.slot.cancel_reader import READ_S
from spark_bull.worker.slot.slot_queue import SlotQueue
from spark_bull.worker.slot.termination import return_jobs

log = logging.getLogger("spark_bull")


class EndReader(PollingThread):
    """Reads whether the slot is to return its jobs; `on_end` is called when it has done so.

    While the slot holds no job, it sends nothing.
    """

    def __init__(self, queues: Sequence[SlotQueue], on_end: Callable[[], None]) -> None:
        super().__init__("end-reader", READ_S)
        self._queues = queues
        self._on_end = on_end

    def poll(self) -> bool:
        try:
            if any(queue.is_to_end() for queue in self._queues if queue.keeper.held()):
                return_jobs(self._queues)
                self._on_end()
                return True
        except SparkBullError as error:
            log.info("could not read whether the slot is to end: %s", error)
        return False
