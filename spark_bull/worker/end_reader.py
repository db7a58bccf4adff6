"""Returns the jobs of a slot when its worker no longer waits for them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from threading import Event, Thread

from spark_bull.errors import SparkBullError
from spark_bull.worker.slot.cancel_reader import READ_S
from spark_bull.worker.slot.slot_queue import SlotQueue
from spark_bull.worker.slot.termination import return_jobs

log = logging.getLogger("spark_bull")


class EndReader:
    """A thread that reads whether the slot is to return its jobs; `on_end` is called when it has done so.

    While the slot holds no job, it sends nothing.
    """

    def __init__(self, queues: Sequence[SlotQueue], on_end: Callable[[], None]) -> None:
        self._queues = queues
        self._on_end = on_end
        self._over = Event()
        self._thread = Thread(target=self._read, name="spark-bull-end-reader", daemon=True)

    def __enter__(self) -> EndReader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(timeout=1)

    def _read(self) -> None:
        while not self._over.wait(READ_S):
            try:
                if any(queue.is_to_end() for queue in self._queues if queue.keeper.held()):
                    return_jobs(self._queues)
                    self._on_end()
                    return
            except SparkBullError as error:
                log.info("could not read whether the slot is to end: %s", error)
