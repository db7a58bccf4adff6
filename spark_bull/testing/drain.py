"""Slots that stop when no job can be claimed."""

from __future__ import annotations

from spark_bull.worker.job.job_runner import FunctionRunner
from spark_bull.worker.slot.chunk_loop import ChunkLoop
from spark_bull.worker.slot.concurrent_loop import ConcurrentLoop
from spark_bull.worker.slot.slot_plan import SlotPlan


class ChunkDrain(ChunkLoop):
    """Calls functions in this thread."""

    def __init__(self, plan: SlotPlan, slot: int, _runner: FunctionRunner) -> None:
        super().__init__(plan, slot)

    def _wait(self, timeout_s: float | None = None) -> None:
        self._is_stopping = True
        for queue in self.queues:
            queue.wait.end(b"")


class ConcurrentDrain(ConcurrentLoop):
    """Calls coroutine functions in an event loop, one at a time."""

    def _take_events(self, timeout_s: float | None = None) -> None:
        if timeout_s is None and not self._running:
            self._is_stopping = True
            self._end_waits()
        else:
            super()._take_events(timeout_s)
