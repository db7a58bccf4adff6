"""The counters per minute that workers keep."""

from __future__ import annotations

from spark_bull.model.jobs import QueueMetrics
from spark_bull.queue.bull_queue import BullQueue
from spark_bull.queue.monitor.metrics import COUNTED_STATES


def metrics_of(queue: BullQueue) -> list[QueueMetrics]:
    """The counters of a queue; none in a dialect that keeps none."""
    if not queue.handle.dialect.has("metrics"):
        return []
    return [queue.metrics(state) for state in COUNTED_STATES]
