"""How many jobs have ended per minute, as the workers of Bull 4, BullMQ and Spark count them."""

from __future__ import annotations

from typing import Final

from spark_bull.core.dialects.fields import integer_of
from spark_bull.core.errors import expected
from spark_bull.core.model.jobs import QueueMetrics
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.store.connection import script_command
from spark_bull.core.store.steps import LargeStep, Steps, run

#: The states in which jobs are counted.
COUNTED_STATES: Final = ("completed", "failed")
#: Minutes that are read in a round trip that reads of several queues share.
_FEW: Final = 150


def read_metrics(handle: QueueHandle, state: str, start: int = 0, end: int = -1) -> QueueMetrics:
    """Reads the counters of a state. Raises OptionError for a state that is not counted, and DialectError."""
    return run(handle.connection, reading_metrics(handle, state, start, end))


def reading_metrics(handle: QueueHandle, state: str, start: int = 0, end: int = -1) -> Steps[QueueMetrics]:
    """The steps of `read_metrics`."""
    if state not in COUNTED_STATES:
        raise expected("state", " or ".join(COUNTED_STATES), state)
    handle.dialect.require("metrics")
    keys = {"meta": handle.keys[f"metrics_{state}"], "data": handle.keys[f"metrics_{state}_data"]}
    call = script_command("read/metrics", keys, {"first": start, "last": end})
    ((count, prev_ts, prev_count, data, points),) = yield [call] if 0 <= end - start < _FEW else LargeStep([call])
    return QueueMetrics(
        handle.keys.queue,
        state,
        integer_of(count) or 0,
        integer_of(prev_ts) or 0,
        integer_of(prev_count) or 0,
        tuple(integer_of(point) or 0 for point in data),
        int(points),
        min(start, points) if start >= 0 else max(0, start + points),
    )
